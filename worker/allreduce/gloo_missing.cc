// Stands in for gloo_group.cc where the library is not installed.
#include "worker/allreduce/gloo_group.h"

namespace pando {

bool HasGloo() { return false; }

Result<std::unique_ptr<AllreduceGroup>> ConnectGlooGroup(const GlooOptions&,
                                                         const std::atomic<bool>&) {
  return InvalidArgument(
      "run.strategy = \"allreduce\" needs gloo, which this program was built without: install "
      "libgloo-dev (tools/setup.sh) and build again");
}

}  // namespace pando
