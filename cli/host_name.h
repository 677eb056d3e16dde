// The name of this machine, as processes register and summaries say it.
#pragma once

#include <string>

namespace pando {

std::string HostName();  // "unknown" where the system does not say

}  // namespace pando
