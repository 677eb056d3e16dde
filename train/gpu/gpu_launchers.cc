#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/float_buffer.h"
#include "kernels/copy_queue.h"
#include "kernels/launch_graph.h"
#include "kernels/ops.h"
#include "train/gpu/device_codec.h"
#include "train/gpu/input_copies.h"
#include "train/pass_launcher.h"

namespace pando {
namespace {

// Smaller networks are recorded. Their parameters arrive so quickly that forward can wait for all
// of them: 4 MiB.
constexpr size_t kRecordedFloatsMax = size_t{1} << 20;
constexpr size_t kScoreFloats = sizeof(CrossEntropyScore) / sizeof(float);

// ---- layer by layer -----------------------------------------------------------------------------

// Launches a whole micro-batch without waiting. Data moves between the host and the GPU while
// kernels run: samples and each layer's parameters go in as soon as the host has them, the score
// and sums of gradients come back.
// Owns: copy streams, the GPU's copies of samples and parameters, and results on their way.
class GpuLauncher : public PassLauncher {
 public:
  explicit GpuLauncher(const LauncherParts& parts)
      : parts_(parts),
        batches_(parts.device),
        uploads_(parts.device),
        downloads_(parts.device),
        parameters_(parts.device, parts.plan.shards, uploads_,
                    parts.is_layered ? nullptr : &parts.plan.pulls),
        score_(PinnedFloats(parts.device, kScoreFloats)) {
    const PayloadPlan& pushes = parts.plan.pushes;
    if (!DeviceCodec::CanCode(parts.device, pushes)) return;
    encoder_.emplace(parts.device, pushes, parts.plan.shards.shard_count());
    encoded_ = DeviceFloats(parts.device, pushes.float_count());
  }

  Status Forward(const std::shared_ptr<const Batch>& batch, MicroBatchName name,
                 PassParameters& parameters) override {
    Begin(batch, name, parameters);
    for (uint32_t layer = 0; layer < parts_.network.layer_count(); ++layer) {
      PANDO_RETURN_IF_ERROR(BringParameters(layer, parameters));
      parts_.network.Forward(layer, parameters_.values());
      parts_.timeline.DidForward(layer);
    }
    return {};
  }

  std::optional<BatchScore> Score(float* metrics) override {
    SendScore();
    parts_.network.WriteScore(metrics);
    return std::nullopt;
  }

  Status Backward(const BackwardPart& part, PassParameters& parameters, float* gradients) override {
    for (uint32_t layer = part.last + 1; layer-- > part.first;) {
      const size_t turn = BackwardTurn(parts_.network, layer);
      PANDO_RETURN_IF_ERROR(BringParameters(turn, parameters));
      parts_.network.Backward(layer, parameters_.values(), gradients);
      parts_.timeline.DidBackward(layer);
    }
    return {};
  }

  // The sum is sent by the next TakeResults.
  std::optional<CompleteSum> BringHome(CompleteSum sum) override {
    queued_.push_back(std::move(sum));
    return std::nullopt;
  }

  Result<PassResults> TakeResults(Wait wait, const PassParameters& parameters) override;
  void End() override;

 protected:
  // A pass over this batch begins, which reads these parameters.
  void Begin(const std::shared_ptr<const Batch>& batch, MicroBatchName name,
             const PassParameters& parameters);
  // Makes the parameters that `turn` reads available at parameters_.values(), for launches from now
  // on. Waits for the host to have them, unless the GPU has a copy already.
  Status BringParameters(size_t turn, PassParameters& parameters);
  void SendScore();
  const float* parameter_values() const { return parameters_.values(); }

  const LauncherParts parts_;

 private:
  struct OnItsWay {
    CopyQueue::Ticket ticket;
    std::vector<CompleteSum> sums;  // empty: the score
  };
  void SendSums();
  ShardRange PlaceFor(ShardId shard) const;  // in host_, and in encoded_
  PassResults TakeArrived();
  BatchScore ReadScore() const;
  void BringNextBatch();

  BatchUpload batches_;
  CopyQueue uploads_;
  CopyQueue downloads_;
  ParameterCopy parameters_;
  FloatBuffer score_;  // pinned: the score arrives here
  std::optional<DeviceCodec> encoder_;
  FloatBuffer encoded_;              // on the GPU, if it encodes: sums of this pass
  SharedBuffer host_;                // the sums arrive here
  std::vector<CompleteSum> queued_;  // not sent yet
  std::deque<OnItsWay> sent_;        // in the order of sending
  bool has_brought_next_ = false;    // the samples of the next pass
};

void GpuLauncher::Begin(const std::shared_ptr<const Batch>& batch, MicroBatchName name,
                        const PassParameters& parameters) {
  has_brought_next_ = false;
  batches_.SetIn(parts_.network, batch, name);
  parts_.timeline.Did(StepTimeline::What::kPrepare);
  parameters_.Follow(parameters.serial(),
                     [&parameters](ShardId shard) { return parameters.kept_shard(shard); });
}

Status GpuLauncher::BringParameters(size_t turn, PassParameters& parameters) {
  const ShardPlan::Run shards = parameters.ReadsAt(turn);
  if (parameters_.Has(shards)) return parameters.CheckWanted();
  PANDO_RETURN_IF_ERROR(parameters.Await(turn));
  parameters_.Bring(shards);
  return {};
}

void GpuLauncher::SendScore() {
  downloads_.AwaitLaunched();
  downloads_.ToHost(parts_.network.device_score(), std::as_writable_bytes(score_.span()));
  sent_.push_back({downloads_.Mark(), {}});
}

// The GPU's vectors are kept until the copies have read them.
void GpuLauncher::SendSums() {
  if (queued_.empty()) return;
  if (parts_.sums_stay) {
    downloads_.AwaitLaunched();
    sent_.push_back({downloads_.Mark(), std::exchange(queued_, {})});
    return;
  }
  if (host_ == nullptr) host_ = parts_.host_sums.Take();
  for (const CompleteSum& sum : queued_) {
    if (encoder_) encoder_->Encode(sum.shard, sum.payload.floats().data(), encoded_.data());
  }
  downloads_.AwaitLaunched();
  for (const CompleteSum& sum : queued_) {
    const ShardRange place = PlaceFor(sum.shard);
    downloads_.ToHost(encoder_ ? encoded_.data() + place.first : sum.payload.floats().data(),
                      std::as_writable_bytes(host_->span().subspan(place.first, place.size())));
  }
  sent_.push_back({downloads_.Mark(), std::exchange(queued_, {})});
}

ShardRange GpuLauncher::PlaceFor(ShardId shard) const {
  return encoder_ ? parts_.plan.pushes.range(shard) : parts_.plan.shards.range(shard);
}

Result<PassResults> GpuLauncher::TakeResults(Wait wait, const PassParameters& parameters) {
  SendSums();
  PassResults results = TakeArrived();
  if (wait == Wait::kNo || !results.is_empty()) return results;
  BringNextBatch();
  if (sent_.empty()) return results;
  PANDO_RETURN_IF_ERROR(parameters.CheckWanted());
  downloads_.Await(sent_.front().ticket);
  return TakeArrived();
}

PassResults GpuLauncher::TakeArrived() {
  PassResults results;
  for (; !sent_.empty() && downloads_.IsDone(sent_.front().ticket); sent_.pop_front()) {
    std::vector<CompleteSum>& sums = sent_.front().sums;
    if (sums.empty()) results.score = ReadScore();
    for (CompleteSum& sum : sums) {
      const ShardRange place = PlaceFor(sum.shard);
      if (!parts_.sums_stay) sum.payload = ToBlob(host_, place.first, place.size());
      results.sums.push_back(std::move(sum));
    }
  }
  return results;
}

BatchScore GpuLauncher::ReadScore() const {
  const auto& score = *reinterpret_cast<const CrossEntropyScore*>(score_.data());
  return {.loss_sum = score.loss_sum,
          .correct_count = score.correct_count,
          .top5_count = score.top5_count};
}

// The next pass's samples are brought in behind this pass's launches, while its results are
// awaited.
void GpuLauncher::BringNextBatch() {
  if (std::exchange(has_brought_next_, true)) return;
  if (auto batch = parts_.next_batch()) batches_.Bring(batch);
}

void GpuLauncher::End() {
  uploads_.Await(uploads_.Mark());
  downloads_.Await(downloads_.Mark());
  queued_.clear();
  sent_.clear();
  host_ = nullptr;
  parts_.timeline.Did(StepTimeline::What::kAwaitDevice);
}

// ---- from recordings ----------------------------------------------------------------------------

// The launches of a small network's passes as recordings (LaunchGraph), one set for each sample
// count and gradient vector. Owns: the recordings, kPassesMax at most.
class PassRecordings {
 public:
  // A pass is cut into `part_count` parts, because the host has work to do between them.
  PassRecordings(Device device, size_t part_count) : device_(device), part_count_(part_count) {}

  // A pass over `sample_count` samples that writes its gradients there. The first whole pass of a
  // sample count is launched directly, because libraries make their plans then. The first pass
  // after it into these gradients is recorded. Later ones are launched from the recording.
  void Begin(uint32_t sample_count, const float* gradients);
  // Runs the pass's next part. `launches` launches it, and does the same in every pass.
  void Launch(const std::function<void()>& launches);

 private:
  static constexpr size_t kPassesMax = 64;
  using Name = std::pair<uint32_t, const float*>;
  using Parts = std::vector<LaunchGraph>;

  const Device device_;
  const size_t part_count_;
  std::set<uint32_t> known_counts_;  // sample counts of which a whole pass was launched
  std::map<Name, Parts> passes_;
  Parts* pass_ = nullptr;  // the current one; null: launched directly
  uint32_t sample_count_ = 0;
  size_t next_part_ = 0;
};

void PassRecordings::Begin(uint32_t sample_count, const float* gradients) {
  next_part_ = 0;
  pass_ = nullptr;
  sample_count_ = sample_count;
  if (!known_counts_.contains(sample_count)) return;
  const Name name{sample_count, gradients};
  if (!passes_.contains(name) && passes_.size() == kPassesMax) return;
  pass_ = &passes_[name];
  // A pass that failed while it was recorded is recorded again.
  if (pass_->size() < part_count_) pass_->clear();
}

void PassRecordings::Launch(const std::function<void()>& launches) {
  PANDO_CHECK(next_part_ < part_count_);
  const size_t part = next_part_++;
  if (pass_ == nullptr) {
    launches();
    if (next_part_ == part_count_) known_counts_.insert(sample_count_);
    return;
  }
  if (part == pass_->size()) pass_->emplace_back(device_, launches);
  (*pass_)[part].Launch();
}

// Forward with the score is the first recorded part; the parts of backward follow.
class RecordedLauncher : public GpuLauncher {
 public:
  explicit RecordedLauncher(const LauncherParts& parts)
      : GpuLauncher(parts),
        recordings_(parts.device, 1 + PlanBackwardParts(parts.plan, parts.network).size()) {}

  // Waits for all parameters. Score launches the layers, because they are recorded with `metrics`.
  Status Forward(const std::shared_ptr<const Batch>& batch, MicroBatchName name,
                 PassParameters& parameters) override {
    Begin(batch, name, parameters);
    sample_count_ = batch->sample_count();
    for (uint32_t layer = 0; layer < parts_.network.layer_count(); ++layer) {
      PANDO_RETURN_IF_ERROR(BringParameters(layer, parameters));
    }
    return {};
  }

  std::optional<BatchScore> Score(float* metrics) override {
    recordings_.Begin(sample_count_, metrics);
    recordings_.Launch([&] {
      for (uint32_t layer = 0; layer < parts_.network.layer_count(); ++layer)
        parts_.network.Forward(layer, parameter_values());
      parts_.network.WriteScore(metrics);
    });
    parts_.timeline.Did(StepTimeline::What::kForward);
    SendScore();
    return std::nullopt;
  }

  Status Backward(const BackwardPart& part, PassParameters& parameters, float* gradients) override {
    PANDO_RETURN_IF_ERROR(parameters.CheckWanted());
    recordings_.Launch([&] {
      for (uint32_t layer = part.last + 1; layer-- > part.first;)
        parts_.network.Backward(layer, parameter_values(), gradients);
    });
    parts_.timeline.Did(StepTimeline::What::kBackward);
    return {};
  }

 private:
  PassRecordings recordings_;
  uint32_t sample_count_ = 0;  // of this pass
};

}  // namespace

std::unique_ptr<PassLauncher> MakeGpuLauncher(const LauncherParts& parts) {
  if (parts.is_layered || parts.plan.layout.float_count() > kRecordedFloatsMax)
    return std::make_unique<GpuLauncher>(parts);
  return std::make_unique<RecordedLauncher>(parts);
}

}  // namespace pando
