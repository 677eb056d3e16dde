// The version of ZeroMQ at work, for `pando doctor`.
#pragma once

#include <string>

namespace pando {

std::string ZmqVersion();  // "4.3.4"

}  // namespace pando
