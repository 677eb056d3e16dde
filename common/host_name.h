// The name of this machine, for registration and summaries.
#pragma once

#include <string>

namespace pando {

std::string HostName();  // "unknown" where the system does not say

}  // namespace pando
