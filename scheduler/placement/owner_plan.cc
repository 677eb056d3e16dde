#include "scheduler/placement/owner_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "proto/assignment.h"

namespace pando {
namespace {

constexpr double kNewestShare = 0.3;  // the newest measurement's share in the smoothed one

// Returns the speeds with the mean in place of unknown ones; empty if none is known.
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
  // Even shares do not change, so they are better for nearly equal workers.
  return StepMicros(even, workers) * 5 <= StepMicros(shares, workers) * 6 ? even : shares;
}

constexpr Micros kSpeedInterval = std::chrono::seconds(5);
// A new view must save at least 1 / kStepParts of a step: it makes workers send gradients again.
constexpr uint64_t kStepParts = 10;
// A worker that has had no share for this long gets one micro-batch until speeds are compared
// again: only a worker that computes is measured.
constexpr Micros kTrialAfter = std::chrono::seconds(30);
// The time in which a joiner gets its parameters before its first step.
constexpr Micros kHandOverTime = std::chrono::milliseconds(100);

// Returns the workers in the same order, but grouped by rack, and within a rack by host.
std::vector<const Member*> GroupByPlace(std::vector<const Member*> workers) {
  std::map<std::string, size_t> racks, hosts;  // in the order of their first workers
  for (const Member* worker : workers) {
    racks.try_emplace(worker->registration.rack, racks.size());
    hosts.try_emplace(worker->registration.host, hosts.size());
  }
  std::ranges::stable_sort(workers, {}, [&](const Member* worker) {
    return std::pair(racks[worker->registration.rack], hosts[worker->registration.host]);
  });
  return workers;
}

std::set<NodeId> CollectNodes(const std::vector<WorkerSpeed>& speeds) {
  std::set<NodeId> nodes;
  for (const WorkerSpeed& speed : speeds) nodes.insert(speed.worker);
  return nodes;
}

}  // namespace

void SpeedMeter::Observe(uint64_t micro_batch_us) {
  if (micro_batch_us == 0) return;
  const auto newest = static_cast<double>(micro_batch_us);
  micro_batch_us_ =
      micro_batch_us_ == 0 ? newest : micro_batch_us_ * (1 - kNewestShare) + newest * kNewestShare;
}

void StragglerMeter::Observe(NodeId worker, const Heartbeat& heartbeat) {
  const bool waits = heartbeat.activity == Activity::kWaitingForParameters;
  if (!waits && heartbeat.activity != Activity::kComputing) return;
  Samples& samples = samples_[worker];
  ++samples.count;
  samples.waiting += waits ? 1 : 0;
}

// A straggler waits in at most a quarter of its samples, while at least half of the workers wait in
// at least half of theirs.
void StragglerMeter::Judge(const std::map<NodeId, uint32_t>& shares, Micros step_time) {
  constexpr uint32_t kSamplesMin = 4;
  uint32_t sharing_count = 0, waiting_count = 0;
  for (const auto& [node, share] : shares) {
    if (share == 0) continue;
    const Samples& samples = samples_[node];
    ++sharing_count;
    if (samples.count >= kSamplesMin && 2 * samples.waiting >= samples.count) ++waiting_count;
  }
  for (const auto& [node, share] : shares) {
    if (share == 0) continue;
    const Samples& samples = samples_[node];
    const bool is_late = samples.count >= kSamplesMin && 4 * samples.waiting <= samples.count &&
                         2 * waiting_count >= sharing_count;
    micro_batch_us_.erase(node);
    if (is_late) micro_batch_us_[node] = static_cast<uint64_t>(step_time.count()) / share;
  }
  samples_.clear();
}

void StragglerMeter::Forget(NodeId worker) {
  samples_.erase(worker);
  micro_batch_us_.erase(worker);
}

uint64_t StragglerMeter::micro_batch_us(NodeId worker) const {
  const auto it = micro_batch_us_.find(worker);
  return it == micro_batch_us_.end() ? 0 : it->second;
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
    if (lives && computing != owner.worker && owner.worker != kUnknownNode) {
      const bool is_under_way = old.worker == owner.worker && old.previous == computing;
      owner.first_step = is_under_way ? old.first_step : options.first_step;
      owner.previous = computing;
    }
    owners.push_back(owner);
  }
  return owners;
}

void OwnerPlan::Resume() {
  for (const MicroBatchOwner& owner : views_.view().owners) shared_among_.insert(owner.worker);
}

// Returns the workers that take work: all except avoided ones, or these if there is no other. They
// are in the order of their ranks, but grouped by rack and host, so that each of these computes few
// subtrees (P6a).
std::vector<WorkerSpeed> OwnerPlan::Speeds(Micros now) const {
  const std::set<NodeId> all_avoided = silences_.Avoided(now);
  std::vector<WorkerSpeed> speeds;
  std::vector<WorkerSpeed> avoided;
  for (const Member* worker : GroupByPlace(members_.Workers())) {
    if (worker->is_draining) continue;
    const NodeId node = worker->peer.node;
    const auto idle = idle_since_.find(node);
    const bool is_on_trial = idle != idle_since_.end() && now - idle->second >= kTrialAfter;
    (all_avoided.contains(node) ? avoided : speeds)
        .push_back({node, micro_batch_us(node), is_on_trial});
  }
  return speeds.empty() ? avoided : speeds;
}

uint64_t OwnerPlan::micro_batch_us(NodeId worker) const {
  const auto it = speeds_.find(worker);
  const uint64_t computing_us = it == speeds_.end() ? 0 : it->second.micro_batch_us();
  return std::max(computing_us, stragglers_.micro_batch_us(worker));
}

std::vector<NodeId> OwnerPlan::ShareAll(const std::vector<WorkerSpeed>& speeds) const {
  const uint32_t count = plan_.job.micro_batches;
  return SpreadInRuns(ShareMicroBatches(count, speeds), speeds, count);
}

std::vector<MicroBatchOwner> OwnerPlan::NextOwners(Micros now) {
  const std::vector<MicroBatchOwner>& before = views_.view().owners;
  const std::vector<WorkerSpeed> speeds = Speeds(now);
  std::vector<NodeId> workers;
  for (const MicroBatchOwner& owner : before) workers.push_back(owner.worker);
  std::set<NodeId> among = CollectNodes(speeds);
  const bool has_dispute = verification_.has_dispute();
  const bool is_as_before = among == shared_among_ && had_judge_ == has_dispute;
  shared_among_ = std::move(among);
  if (!is_as_before || has_speed_gain_) workers = ShareAll(speeds);
  has_speed_gain_ = false;
  had_judge_ = has_dispute;
  verification_.AppointJudge(workers);
  const auto is_living = [&](NodeId node) {
    const Member* member = members_.Find(node);
    return member != nullptr && member->takes_part();
  };
  // Hand-overs take place at a step that the run reaches when a joiner is ready for it.
  const Version committed = progress_.committed();
  const Step ahead(committed.value() + 1 + progress_.StepsWithin(kHandOverTime));
  return HandOverTo(
      workers, before,
      {.is_living = is_living, .lowest = StepUpdating(committed), .first_step = ahead});
}

std::vector<MicroBatchOwner> OwnerPlan::FirstOwners(Micros now) {
  const std::vector<WorkerSpeed> speeds = Speeds(now);
  std::vector<NodeId> workers = ShareAll(speeds);
  shared_among_ = CollectNodes(speeds);
  verification_.AppointJudge(workers);
  std::vector<MicroBatchOwner> owners;
  for (NodeId worker : workers) owners.push_back({.worker = worker});
  return owners;
}

// Returns the time of a step, exchange included, or a lower bound if no step ended since the last
// call. Returns none at the first call, and at the first one after a rollback.
std::optional<Micros> OwnerPlan::MeasureStep(Micros now) {
  const Version committed = progress_.committed();
  const Micros since = now - measured_at_;
  const bool is_first = !measured_ || committed < *measured_;
  if (!is_first && committed == *measured_) return step_time_ = std::max(step_time_, since);
  if (is_first) {
    step_time_ = Micros(0);
  } else {
    step_time_ = since / static_cast<int64_t>(committed.value() - measured_->value());
  }
  measured_at_ = now;
  measured_ = committed;
  return is_first ? std::nullopt : std::optional(step_time_);
}

void OwnerPlan::Tick(Micros now) {
  if (views_.view().owners.empty() || phase_.is_rolling_back() || IsGroup(plan_)) return;
  if (look_at_ == Micros(0)) look_at_ = now + kSpeedInterval;  // all workers have reported by then
  if (now < look_at_) return;
  look_at_ = now + kSpeedInterval;
  const std::optional<Micros> step_time = MeasureStep(now);
  std::map<NodeId, uint32_t> shares;
  for (const MicroBatchOwner& owner : views_.view().owners) ++shares[owner.worker];
  if (step_time) stragglers_.Judge(shares, *step_time);
  const std::vector<WorkerSpeed> speeds = Speeds(now);
  if (speeds.empty() || !IsWorthAView(speeds, step_time)) return;
  has_speed_gain_ = true;
  views_.RequestView(now);
}

// Returns whether an idle worker is on trial, or other shares would save more than a sixth of the
// computing time and a tenth of the step.
bool OwnerPlan::IsWorthAView(const std::vector<WorkerSpeed>& speeds,
                             std::optional<Micros> step_time) const {
  const std::vector<MicroBatchOwner>& owners = views_.view().owners;
  std::vector<uint32_t> shares;
  for (const WorkerSpeed& speed : speeds) {
    shares.push_back(
        static_cast<uint32_t>(std::ranges::count(owners, speed.worker, &MicroBatchOwner::worker)));
  }
  const auto best = ShareMicroBatches(plan_.job.micro_batches, speeds);
  for (size_t i = 0; i < speeds.size(); ++i) {
    if (speeds[i].is_on_trial && shares[i] == 0 && best[i] != 0) return true;
  }
  const uint64_t now_us = StepMicros(shares, speeds);
  const uint64_t best_us = StepMicros(best, speeds);
  return step_time && now_us * 5 > best_us * 6 &&
         now_us - best_us >= static_cast<uint64_t>(step_time->count()) / kStepParts;
}

void OwnerPlan::OnView(Micros now) {
  const std::vector<MicroBatchOwner>& owners = views_.view().owners;
  for (const auto& [node, member] : members_.all()) {
    const bool is_idle = std::ranges::find(owners, node, &MicroBatchOwner::worker) == owners.end();
    if (is_idle) {
      idle_since_.try_emplace(node, now);
    } else {
      idle_since_.erase(node);
    }
  }
}

void OwnerPlan::Forget(NodeId worker) {
  speeds_.erase(worker);
  idle_since_.erase(worker);
  stragglers_.Forget(worker);
}

}  // namespace pando
