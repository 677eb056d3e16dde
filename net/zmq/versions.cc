#include "net/zmq/versions.h"

#include <fmt/format.h>
#include <zmq.h>

namespace pando {

std::string ZmqVersion() {
  int major = 0, minor = 0, patch = 0;
  zmq_version(&major, &minor, &patch);
  return fmt::format("{}.{}.{}", major, minor, patch);
}

}  // namespace pando
