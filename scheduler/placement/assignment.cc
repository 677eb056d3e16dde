#include "scheduler/placement/assignment.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"
#include "common/mutation.h"
#include "proto/assignment.h"

namespace pando {

namespace {

constexpr double kNewestShare = 0.3;  // of a new measurement in the evened-out one

// Speeds with the unknown ones filled in; empty if none is known.
std::vector<uint64_t> KnownSpeeds(const std::vector<WorkerSpeed>& workers) {
  uint64_t sum = 0;
  uint64_t known = 0;
  for (const WorkerSpeed& worker : workers) {
    sum += worker.micro_batch_us;
    known += worker.micro_batch_us != 0;
  }
  if (known == 0) return {};
  std::vector<uint64_t> speeds;
  for (const WorkerSpeed& worker : workers)
    speeds.push_back(worker.micro_batch_us != 0 ? worker.micro_batch_us : sum / known);
  return speeds;
}

std::vector<uint32_t> SharesBySpeed(uint32_t count, const std::vector<WorkerSpeed>& workers) {
  const uint64_t w = workers.size();
  std::vector<uint32_t> even(w);
  for (uint64_t i = 0; i < w; ++i)
    even[i] = static_cast<uint32_t>((i + 1) * count / w - i * count / w);
  const std::vector<uint64_t> speeds = KnownSpeeds(workers);
  if (speeds.empty()) return even;
  std::vector<uint32_t> shares(w);
  for (uint32_t m = 0; m < count; ++m) {
    size_t best = 0;
    for (size_t i = 1; i < w; ++i) {
      if ((shares[i] + 1) * speeds[i] < (shares[best] + 1) * speeds[best]) best = i;
    }
    ++shares[best];
  }
  // Nearly equal workers are better off with the even shares that do not change.
  return StepMicros(even, workers) * 5 <= StepMicros(shares, workers) * 6 ? even : shares;
}

}  // namespace

void SpeedMeter::Observe(uint64_t micro_batch_us) {
  if (micro_batch_us == 0) return;
  const auto newest = static_cast<double>(micro_batch_us);
  micro_batch_us_ =
      micro_batch_us_ == 0 ? newest : micro_batch_us_ * (1 - kNewestShare) + newest * kNewestShare;
}

std::vector<uint32_t> ShareMicroBatches(uint32_t count, const std::vector<WorkerSpeed>& workers) {
  std::vector<uint32_t> shares = SharesBySpeed(count, workers);
  for (size_t i = 0; i < workers.size(); ++i) {
    const auto most = std::ranges::max_element(shares);
    if (!workers[i].is_on_trial || shares[i] != 0 || *most < 2) continue;
    --*most;
    ++shares[i];
  }
  return shares;
}

uint64_t StepMicros(const std::vector<uint32_t>& shares, const std::vector<WorkerSpeed>& workers) {
  const std::vector<uint64_t> speeds = KnownSpeeds(workers);
  uint64_t longest = 0;
  for (size_t i = 0; i < speeds.size(); ++i) longest = std::max(longest, shares[i] * speeds[i]);
  return longest;
}

std::vector<NodeId> SpreadInRuns(const std::vector<uint32_t>& shares,
                                 const std::vector<WorkerSpeed>& workers, uint32_t count) {
  if (workers.empty()) return std::vector<NodeId>(count, kUnknownNode);
  std::vector<NodeId> runs;
  for (size_t i = 0; i < workers.size(); ++i) runs.insert(runs.end(), shares[i], workers[i].worker);
  PANDO_CHECK(runs.size() == count);
  return runs;
}

std::vector<MicroBatchOwner> HandOverTo(const std::vector<NodeId>& workers,
                                        const std::vector<MicroBatchOwner>& before,
                                        const HandOver& options) {
  std::vector<MicroBatchOwner> owners;
  for (size_t m = 0; m < workers.size(); ++m) {
    MicroBatchOwner owner{.worker = workers[m]};
    const MicroBatchOwner old = m < before.size() ? before[m] : MicroBatchOwner{kUnknownNode, {}};
    const NodeId computing = ComputesAt(old, options.lowest);
    const bool lives = computing != kUnknownNode && options.is_living(computing);
    const bool may_wait =
        lives || (Mutated(Mutation::kNoPreviousOwner) && computing != kUnknownNode);
    if (may_wait && computing != owner.worker && owner.worker != kUnknownNode) {
      const bool is_under_way = old.worker == owner.worker && old.previous == computing;
      owner.first_step = is_under_way ? old.first_step : options.first_step;
      owner.previous = computing;
    }
    owners.push_back(owner);
  }
  return owners;
}

}  // namespace pando
