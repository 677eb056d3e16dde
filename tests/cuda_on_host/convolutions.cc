// In place of cuDNN: it has no engine, so that kernels/cuda's own convolutions are tested.
#include "kernels/cuda/conv_library.h"

namespace pando::cuda {
namespace {

class HostPlanner : public ConvPlanner {
 public:
  size_t version() const override { return 0; }
  std::unique_ptr<ConvPlan> Plan(const ConvProblem&) override { return nullptr; }
};

}  // namespace

Result<std::unique_ptr<ConvPlanner>> OpenConvPlanner(const CudaOptions&, const ConvSetting&,
                                                     cudaStream_t) {
  return std::unique_ptr<ConvPlanner>(std::make_unique<HostPlanner>());
}

bool HasConvPlanner() { return true; }

}  // namespace pando::cuda
