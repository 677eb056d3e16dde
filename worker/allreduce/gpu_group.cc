#include <utility>

#include "worker/allreduce/allreduce_group.h"

namespace pando {
namespace {

class GpuGroup : public AllreduceGroup {
 public:
  explicit GpuGroup(std::unique_ptr<AllreduceGroup> below) : below_(std::move(below)) {}

  void SumBy(std::unique_ptr<GpuSum> gpus) { gpus_ = std::move(gpus); }
  // Whether this is so on every rank.
  Result<bool> AllSay(bool ours, uint32_t size, const std::atomic<bool>& is_cancelled) {
    if (is_cancelled) return Interrupted("called off");
    *said_ = ours ? 1 : 0;
    PANDO_RETURN_IF_ERROR(below_->Sum(std::span(said_.get(), 1)));
    return *said_ == static_cast<float>(size);
  }

  Status Sum(std::span<float> values) override {
    return gpus_ != nullptr ? gpus_->Sum(values) : below_->Sum(values);
  }
  bool sums_on_gpus() const override { return gpus_ != nullptr; }
  Status SumOnGpus(GpuSum::Pieces pieces, std::span<float> sums) override {
    return gpus_->Sum(pieces, sums);
  }
  Status Broadcast(std::span<std::byte> bytes) override { return below_->Broadcast(bytes); }
  void Close() override {
    if (gpus_ != nullptr) gpus_->Close();
    below_->Close();
  }

 private:
  // gloo makes arrays known to the peers for as long as the group lives.
  const std::unique_ptr<float> said_ = std::make_unique<float>();
  const std::unique_ptr<AllreduceGroup> below_;
  std::unique_ptr<GpuSum> gpus_;
};

}  // namespace

Status AllreduceGroup::SumOnGpus(GpuSum::Pieces, std::span<float>) {
  return Internal("no GPUs sum in this group");
}

Result<JoinedGpus> JoinGpus(GpuSum::Member member, std::unique_ptr<AllreduceGroup> below,
                            const std::atomic<bool>& is_cancelled) {
  auto group = std::make_unique<GpuGroup>(std::move(below));
  std::string refusal;
  const auto all_say = [&](const Status& ours) {
    refusal = ours.ok() ? "another worker cannot" : ours.message();
    return group->AllSay(ours.ok(), member.size, is_cancelled);
  };
  const bool has_gpu = member.device.kind == DeviceKind::kCuda;
  const Result<bool> can = all_say(has_gpu ? GpuSum::Check() : NotFound("a CPU computes"));
  if (!can.ok()) return can.status();
  if (!*can) return JoinedGpus{std::move(group), refusal};

  Result<GpuSum::GroupName> name = GpuSum::GroupName{};
  if (member.rank == 0) name = GpuSum::NewName();
  const Result<bool> is_named = all_say(name.status());
  if (!is_named.ok()) return is_named.status();
  if (!*is_named) return JoinedGpus{std::move(group), refusal};
  PANDO_RETURN_IF_ERROR(group->Broadcast(std::as_writable_bytes(std::span(*name))));

  member.group = *name;
  Result<std::unique_ptr<GpuSum>> gpus = GpuSum::Join(member, is_cancelled);
  const Result<bool> has_joined = all_say(gpus.status());
  if (!has_joined.ok()) return has_joined.status();
  if (!*has_joined) return JoinedGpus{std::move(group), refusal};
  group->SumBy(*std::move(gpus));
  return JoinedGpus{std::move(group), ""};
}

}  // namespace pando
