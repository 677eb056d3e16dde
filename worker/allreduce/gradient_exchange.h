// GradientExchange sums a group's gradients. It collects this rank's complete sums in buckets. A
// separate thread sums each bucket over all ranks as soon as it is full, while backward continues.
// Made by the group's worker process.
//
// In a step a rank has one contribution to each shard for each tree node that its micro-batches
// cover. They are added in the order of nodes. If each rank has an aligned run, that is one node;
// with two ranks the sum is then the tree's own: a + b. Sums over more ranks are in the library's
// order, which is the same on every rank.
//
// A GPU's contributions may stay in its memory until a bucket is full. If this rank has one for
// each shard and GPUs sum, they take them from there. Otherwise the thread brings them to the host.
// In both cases the sums come to the host.
//
// Threads: Add any; Begin, SetWhole and SetHash on one, the protocol thread.
// Owns: two flat vectors of gradients, and its group.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/blob.h"
#include "common/float_buffer.h"
#include "common/timeline/gapless_track.h"
#include "kernels/copy_queue.h"
#include "plan/job_plan.h"
#include "worker/allreduce/allreduce_group.h"

namespace pando {

// DDP's sizes (torch/nn/parallel/distributed.py): the first bucket is small, so that the exchange
// begins early.
inline constexpr size_t kFirstBucketBytes = size_t{1} << 20;
inline constexpr size_t kBucketBytes = size_t{25} << 20;

struct Bucket {
  ShardPlan::Run shards;
  ShardRange floats;  // of the shards, which are neighbours in the flat vector
};

// The shards that are summed together, as in PyTorch's DDP: from the last shard to the first, in
// the order in which backward makes them final. So a bucket leaves while the layers before it are
// computed. A bucket is full once it has its bytes.
std::vector<Bucket> PlanBuckets(const ShardPlan& shards);

// The sums of a run of shards over all micro-batches of the step, unscaled.
struct GradientSums {
  Step step;
  ShardPlan::Run shards;
  SharedBuffer flat;  // overwritten by the next step but one, which waits for SetWhole
};

// The process around an exchange. Threads: called on the exchange's thread.
class ExchangePort {
 public:
  virtual ~ExchangePort() = default;
  // Connects this rank to the others.
  virtual Result<std::unique_ptr<AllreduceGroup>> Connect() = 0;
  // Called with the connected group before its first step.
  virtual Status Prepare(AllreduceGroup& group) = 0;
  virtual void OnSums(GradientSums sums) = 0;
  // All ranks hold the same weights of this version.
  virtual void OnAgreed(Version version) = 0;
  // The last call.
  virtual void OnFailed(Status failure) = 0;
};

class GradientExchange {
 public:
  using Sums = GradientSums;
  // `plan`, `port`, and `timeline` if it is not null, outlive the exchange. `device`: the device
  // whose memory has the contributions.  REQUIRES: TrainerParts::sums_stay, if it is a GPU.
  GradientExchange(const JobPlan& plan, uint32_t rank, ExchangePort& port, Device device = {},
                   Timeline* timeline = nullptr);
  ~GradientExchange();  // stops

  // Connects the group and sums from this step on. `node_count`: how many contributions of a step
  // this rank makes for each shard, any thread.  REQUIRES: called once.
  void Begin(Step first, std::function<size_t(Step)> node_count);

  // Each contribution of a step comes once. Those of step t + 2 come after all sums of step t.
  void Add(Step step, TreeNode node, ShardId shard, const Blob& sum);

  // This rank holds the version whole, so it does not need the sums that made it. Called in order.
  void SetWhole(Version version) {
    Change([&] { whole_ = version; });
  }
  // This rank's hash of a version that is due for evaluation, or of the last one. The ranks compare
  // their hashes before they sum anything of the step that reads the version.
  void SetHash(Version version, uint64_t hash) {
    Change([&] { hashes_[version] = hash; });
  }
  bool IsCompared(Version version) const {
    return plan_.IsEvaluationDue(version) && version > VersionUpdatedBy(first_);
  }

  // Ends the thread, also while it waits. Idempotent.
  void Stop() {
    RequestStop();
    if (thread_.joinable()) thread_.join();
  }
  // The same, but gives up after a while, because connecting cannot be interrupted at every point.
  // False: it gave up, and the process should end.
  bool StopWithin(std::chrono::milliseconds patience);

  const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  struct Names {  // of the track's spans
    TimelineNameId await_version, compare, await_gradients, hand_over;
    std::vector<TimelineNameId> sums;  // by bucket
  };
  using Parts = std::map<TreeNode, Blob>;  // of a shard
  struct PartsMemory {
    Device device;
    std::optional<CopyQueue> downloads;  // of the thread, from a GPU
    FloatBuffer arrivals;                // pinned: of a shard, to be added on the host
  };
  struct StepState {
    std::optional<Step> step;
    size_t node_count = 0;
    std::vector<Parts> parts;              // by shard
    std::vector<uint32_t> missing_counts;  // shards, by bucket
  };
  void RequestStop() {
    Change([&] {
      is_stopping_ = true;
      if (group_ != nullptr) group_->Close();
    });
  }
  // Makes a change for which a thread may wait.
  template <class MakeChange>
  void Change(const MakeChange& make_change) {
    const std::lock_guard lock(mutex_);
    make_change();
    changed_.notify_all();
  }
  void NameSpans(Timeline& timeline);
  void Run();
  Status Work();
  Status Compare(AllreduceGroup& group, Version version);
  Status SumStep(AllreduceGroup& group, Step step);
  Status SumBucket(AllreduceGroup& group, Step step, const Bucket& bucket);
  void BringToHost(std::span<const Parts> parts, float* to);
  // Waits for this condition, which is checked with the mutex held. False: the thread stops.
  template <class IsMet>
  bool Await(const IsMet& is_met) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_stopping_ || is_met(); });
    return !is_stopping_;
  }
  StepState& StateFor(Step step);  // REQUIRES: mutex_ held
  float* FlatFor(Step step) { return flats_[step.value() % flats_.size()]->data(); }

  const JobPlan& plan_;
  const uint32_t rank_;
  PartsMemory parts_;
  ExchangePort& port_;
  const std::vector<Bucket> buckets_;
  GaplessTrack track_;  // of the thread: sums, and what it waits for between them
  Names names_;
  std::vector<size_t> bucket_of_;      // by shard
  std::array<SharedBuffer, 2> flats_;  // by a step's parity
  Step first_;
  std::function<size_t(Step)> node_count_;
  std::thread thread_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::array<StepState, 2> states_;  // by a step's parity
  Version whole_;
  std::map<Version, uint64_t> hashes_;
  bool is_stopping_ = false;
  bool has_ended_ = true;  // the thread, or it has not begun
  std::unique_ptr<AllreduceGroup> group_;
};

}  // namespace pando
