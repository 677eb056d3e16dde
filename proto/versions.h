// The version of Cap'n Proto that the codec was built with, for `pando doctor`.
#pragma once

#include <string>

namespace pando {

std::string CapnpVersion();  // "0.9.2"

}  // namespace pando
