#include "worker/allreduce/gpu_group.h"

#include <span>
#include <utility>

#include "kernels/gpu_sum.h"

namespace pando {
namespace {

class GpuGroup : public AllreduceGroup {
 public:
  GpuGroup(std::unique_ptr<AllreduceGroup> below, std::unique_ptr<GpuSum> gpus)
      : below_(std::move(below)), gpus_(std::move(gpus)) {}

  Status Sum(std::span<float> values) override { return gpus_->Sum(values); }
  Status Broadcast(std::span<std::byte> bytes) override { return below_->Broadcast(bytes); }
  void Close() override {
    gpus_->Close();
    below_->Close();
  }

 private:
  const std::unique_ptr<AllreduceGroup> below_;
  const std::unique_ptr<GpuSum> gpus_;
};

// Whether every rank says so.
Result<bool> AllSay(AllreduceGroup& group, uint32_t size, bool ours) {
  float count = ours ? 1 : 0;
  if (Status s = group.Sum(std::span(&count, 1)); !s.ok()) return s;
  return count == static_cast<float>(size);
}

}  // namespace

Result<JoinedGpus> JoinGpus(const GpuGroupOptions& options, std::unique_ptr<AllreduceGroup> group,
                            const std::atomic<bool>& is_cancelled) {
  const bool has_gpu = options.device.kind == DeviceKind::kCuda;
  Status can = has_gpu ? GpuSum::Check() : NotFound("a CPU computes");
  const auto refused = [&] {
    const std::string why = can.ok() ? "another worker cannot" : can.message();
    return JoinedGpus{std::move(group), why};
  };
  Result<bool> all_can = AllSay(*group, options.size, can.ok());
  if (!all_can.ok()) return all_can.status();
  if (!*all_can) return refused();

  Result<GpuSum::GroupName> name = GpuSum::GroupName{};
  if (options.rank == 0) name = GpuSum::NewName();
  Result<bool> has_name = AllSay(*group, options.size, name.ok());
  if (!has_name.ok()) return has_name.status();
  can = name.status();
  if (!*has_name) return refused();
  if (Status s = group->Broadcast(std::as_writable_bytes(std::span(*name))); !s.ok()) return s;

  Result<std::unique_ptr<GpuSum>> gpus = GpuSum::Join({.device = options.device,
                                                       .group = *name,
                                                       .rank = options.rank,
                                                       .size = options.size,
                                                       .timeout = options.connect_timeout},
                                                      is_cancelled);
  Result<bool> all_joined = AllSay(*group, options.size, gpus.ok());
  if (!all_joined.ok()) return all_joined.status();
  can = gpus.status();
  if (!*all_joined) return refused();
  return JoinedGpus{std::make_unique<GpuGroup>(std::move(group), *std::move(gpus)), ""};
}

}  // namespace pando
