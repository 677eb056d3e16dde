// Stands in for gloo_group.cc where the library is not installed.
#include "worker/allreduce/allreduce_group.h"

namespace pando {

Status CheckGloo() {
  return InvalidArgument(
      "--strategy allreduce needs gloo, which this program was built without: install libgloo-dev "
      "(tools/setup.sh does) and build again");
}

Result<std::unique_ptr<AllreduceGroup>> ConnectGlooGroup(const GlooOptions&,
                                                         const std::atomic<bool>&) {
  return CheckGloo();
}

}  // namespace pando
