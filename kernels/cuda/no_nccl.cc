// GpuSum in a build without CUDA or without NCCL: every call returns the same error.
#include "kernels/gpu_sum.h"

namespace pando {

struct GpuSum::Impl {};

Status GpuSum::Check() { return NotFound("this pando was built without NCCL"); }
Result<GpuSum::GroupName> GpuSum::NewName() { return Check(); }
Result<std::unique_ptr<GpuSum>> GpuSum::Join(const Member&, const std::atomic<bool>&) {
  return Check();
}
GpuSum::GpuSum(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GpuSum::~GpuSum() = default;
Status GpuSum::Sum(std::span<float>) { return Check(); }
Status GpuSum::Sum(Pieces, std::span<float>) { return Check(); }

}  // namespace pando
