// The version of the ZeroMQ library, for `pando doctor`.
#pragma once

#include <string>

namespace pando {

std::string ZmqVersion();  // "4.3.4"

}  // namespace pando
