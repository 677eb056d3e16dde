#include "proto/versions.h"

#include <capnp/common.h>

namespace pando {

std::string CapnpVersion() {
  return std::to_string(CAPNP_VERSION_MAJOR) + "." + std::to_string(CAPNP_VERSION_MINOR) + "." +
         std::to_string(CAPNP_VERSION_MICRO);
}

}  // namespace pando
