// The scheduler's views: who takes part, where shards are, who computes what; and generations.
#include <algorithm>
#include <iterator>
#include <utility>

#include "common/mutation.h"
#include "scheduler/scheduler.h"

namespace pando {
namespace {

// After a view that moved shards: how soon to look for the next moves, reports aside.
constexpr Micros kMoveInterval = std::chrono::milliseconds(200);
constexpr Micros kSpeedInterval = std::chrono::seconds(5);
// Speeds are worth a view where they save one of so many parts of a step: in a new view gradients
// are sent again.
constexpr uint64_t kStepParts = 10;
// Whoever has had no share for so long gets one micro-batch until speeds are considered again: only
// who computes is measured.
constexpr Micros kTrialAfter = std::chrono::seconds(30);
// How long a joiner has to get its parameters before its first step.
constexpr Micros kHandOverTime = std::chrono::milliseconds(100);
// What restores takes waits this long for the servers that the job wants: a supervisor may be about
// to start one again.
constexpr Micros kRestartGrace = std::chrono::seconds(1);
// Images in transfer to one newcomer at a time. An image has two versions and optimizer state, up
// to five times the shard's parameters.
constexpr size_t kTransferBytesMax = 16 << 20;
constexpr size_t kTransferFloatsMax = kTransferBytesMax / (5 * sizeof(float));
// A pair of machines that keeps making different versions is not healed by beginning again.
constexpr uint32_t kDivergencesMax = 3;

bool IsSame(const ShardPlacement& a, const ShardPlacement& b) {
  return a.primary == b.primary && a.in_sync_backups == b.in_sync_backups &&
         a.syncing_backups == b.syncing_backups;
}
bool IsSame(const MicroBatchOwner& a, const MicroBatchOwner& b) {
  return a.worker == b.worker && a.first_step == b.first_step && a.previous == b.previous;
}
bool IsSame(const NodeInfo& a, const NodeInfo& b) {
  return a.node == b.node && a.incarnation == b.incarnation;
}
// In the same order, but for who follows the first one of his host.
std::vector<const Member*> ByHost(const std::vector<const Member*>& workers) {
  std::vector<const Member*> sorted;
  for (const Member* first : workers) {
    if (std::ranges::find(sorted, first) != sorted.end()) continue;
    std::ranges::copy_if(workers, std::back_inserter(sorted), [&](const Member* worker) {
      return worker->registration.host == first->registration.host;
    });
  }
  return sorted;
}
template <class T>
bool AreSame(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [](const T& x, const T& y) { return IsSame(x, y); });
}

}  // namespace

// ---- views -------------------------------------------------------------------------------------

ViewId Scheduler::NextViewId() const { return {term_, view_.id.number + 1}; }

void Scheduler::RequestView(Micros at) { view_due_at_ = std::min(view_due_at_.value_or(at), at); }

void Scheduler::MakeView(Micros now) {
  view_due_at_.reset();
  View next = view_;
  next.id = NextViewId();
  next.nodes.clear();
  for (const auto& [node, member] : members_.all()) {
    if (member.takes_part()) next.nodes.push_back(member.Info());
    if (member.avoided_until && *member.avoided_until > now) RequestView(*member.avoided_until);
  }
  ApplyReports(next);
  const std::vector<PlacementServer> servers = members_.Servers(now);
  if (!DropLostReplicas(plan_.shards, servers, next.id, next.shards))
    return PlanRollback(now, "no server in sync is left of some shard");
  const MoveOptions moves{plan_.job.replicas, next.id, kTransferFloatsMax};
  if (MoveShards(plan_.shards, servers, moves, next.shards)) RequestView(now + kMoveInterval);
  next.owners = NextOwners(now);
  const bool is_same = AreSame(next.nodes, view_.nodes) && AreSame(next.shards, view_.shards) &&
                       AreSame(next.owners, view_.owners);
  if (!is_same || !has_announced()) return Publish(now, std::move(next));
  faults_.OnView(view_.id);  // whoever was lost had nothing to do
}

// What primaries said of their backups since the last view: who is in sync, who does not answer.
void Scheduler::ApplyReports(View& next) {
  for (const auto& [shard, newcomer] : synced_) {
    ShardPlacement& placement = next.shards[shard];
    const auto is_it = [&](const SyncingBackup& s) {
      return s.peer == newcomer.peer &&
             (s.since == newcomer.since || Mutated(Mutation::kStaleReport));
    };
    if (std::erase_if(placement.syncing_backups, is_it) != 0)
      placement.in_sync_backups.push_back(newcomer.peer);
  }
  synced_.clear();
  for (const auto& [primary, backup] : silent_backups_) {
    for (ShardPlacement& placement : next.shards) {
      if (placement.primary.node != primary) continue;
      const auto is_it = [&](const PeerId& peer) { return peer.node == backup; };
      std::erase_if(placement.in_sync_backups, is_it);
      std::erase_if(placement.syncing_backups, [&](const auto& s) { return is_it(s.peer); });
    }
  }
  silent_backups_.clear();
}

void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const Synced& synced) {
  for (const SyncedItem& item : synced.items) {
    if (item.shard.value() >= view_.shards.size()) continue;
    const ShardPlacement& placement = view_.shards[item.shard.value()];
    const SyncingBackup pair{item.newcomer, item.pair};
    const auto is_it = [&](const SyncingBackup& s) {
      return s == pair || (Mutated(Mutation::kStaleReport) && s.peer == pair.peer);
    };
    const bool is_source = placement.primary == envelope.sender || Mutated(Mutation::kStaleReport);
    if (!is_source || std::ranges::none_of(placement.syncing_backups, is_it)) continue;  // P24
    if (synced_.insert({item.shard.value(), pair}).second) RequestView(now + kViewGatherTime);
  }
}

// Of those that take work: all but the avoided, or these too if there is nobody else. In the order
// of their ranks, but one host's together: so what a host computes is few subtrees (P6a).
std::vector<WorkerSpeed> Scheduler::Speeds(Micros now) const {
  std::vector<WorkerSpeed> speeds;
  std::vector<WorkerSpeed> avoided;
  for (const Member* worker : ByHost(members_.Workers())) {
    if (worker->is_draining) continue;
    const bool is_avoided = worker->avoided_until && now < *worker->avoided_until;
    const bool is_on_trial = worker->idle_since && now - *worker->idle_since >= kTrialAfter;
    (is_avoided ? avoided : speeds)
        .push_back({worker->peer.node, worker->speed.micro_batch_us(), is_on_trial});
  }
  return speeds.empty() ? avoided : speeds;
}

// Nobody's work changes but for a reason: workers came or went, or speeds say so.
std::vector<MicroBatchOwner> Scheduler::NextOwners(Micros now) {
  const uint32_t count = plan_.job.micro_batches;
  const std::vector<WorkerSpeed> speeds = Speeds(now);
  std::vector<NodeId> workers;
  for (const MicroBatchOwner& owner : view_.owners) workers.push_back(owner.worker);
  std::set<NodeId> among;
  for (const WorkerSpeed& speed : speeds) among.insert(speed.worker);
  const bool is_as_before = among == shared_among_ && had_judge_ == dispute_.has_value();
  shared_among_ = std::move(among);
  if (!is_as_before || has_speed_gain_)
    workers = RunsOf(ShareMicroBatches(count, speeds), speeds, count);
  has_speed_gain_ = false;
  had_judge_ = dispute_.has_value();
  AppointJudge(workers);
  const auto is_living = [&](NodeId node) {
    const Member* member = members_.Find(node);
    return member != nullptr && member->takes_part();
  };
  return HandOverTo(
      workers, view_.owners,
      {.is_living = is_living, .lowest = StepReading(committed_), .first_step = StepAhead()});
}

// A step that the run will reach when a joiner has had time to get ready for it.
Step Scheduler::StepAhead() const {
  return Step(committed_.value() + 1 + pace_.StepsWithin(kHandOverTime));
}

// The lowest incomplete step, for people.
Step Scheduler::StepReached() const { return std::max(StepReading(committed_), step_at_start_); }

// What a step takes, exchange and all; at least so long where none was over since the last look.
// Not known at the first look, nor at the first one after a rollback.
std::optional<Micros> Scheduler::MeasureStep(Micros now) {
  const Micros since = now - measured_at_;
  const bool is_first = !measured_ || committed_ < *measured_;
  if (!is_first && committed_ == *measured_) return step_time_ = std::max(step_time_, since);
  if (is_first) {
    step_time_ = Micros(0);
  } else {
    step_time_ = since / static_cast<int64_t>(committed_.value() - measured_->value());
  }
  measured_at_ = now;
  measured_ = committed_;
  return is_first ? std::nullopt : std::optional(step_time_);
}

// Assignment follows measured speed where computing would gain more than a sixth of its time, and
// the step a tenth of its own.
void Scheduler::ConsiderSpeeds(Micros now) {
  if (view_.owners.empty() || rollback_ || IsGroup()) return;
  if (speeds_at_ == Micros(0)) speeds_at_ = now + kSpeedInterval;  // all have reported by then
  if (now < speeds_at_) return;
  speeds_at_ = now + kSpeedInterval;
  const std::optional<Micros> step_time = MeasureStep(now);
  const std::vector<WorkerSpeed> speeds = Speeds(now);
  if (speeds.empty()) return;
  std::vector<uint32_t> shares;
  for (const WorkerSpeed& speed : speeds) {
    shares.push_back(static_cast<uint32_t>(
        std::ranges::count(view_.owners, speed.worker, &MicroBatchOwner::worker)));
  }
  const auto best = ShareMicroBatches(plan_.job.micro_batches, speeds);
  bool has_trial = false;
  for (size_t i = 0; i < speeds.size(); ++i)
    has_trial |= speeds[i].is_on_trial && shares[i] == 0 && best[i] != 0;
  const uint64_t now_us = StepMicros(shares, speeds);
  const uint64_t best_us = StepMicros(best, speeds);
  const bool is_worth_it =
      step_time && now_us * 5 > best_us * 6 &&
      now_us - best_us >= static_cast<uint64_t>(step_time->count()) / kStepParts;
  if (!has_trial && !is_worth_it) return;
  has_speed_gain_ = true;
  RequestView(now);
}

void Scheduler::Publish(Micros now, View next) {
  const bool had_worker = view_.owners.empty() || WaitingText().empty();
  view_ = std::move(next);
  has_changed_ = true;
  collect_again_at_ = now;  // who was asked for the final weights may be gone
  IndexPrimaries();
  for (auto& [node, member] : members_.all()) {
    member.released_pins.clear();
    const bool is_idle =
        std::ranges::find(view_.owners, node, &MicroBatchOwner::worker) == view_.owners.end();
    member.idle_since = is_idle ? member.idle_since.value_or(now) : std::optional<Micros>();
  }
  faults_.OnView(view_.id);
  repeat_at_ = now;
  uint32_t syncing = 0;
  for (const ShardPlacement& placement : view_.shards)
    syncing += static_cast<uint32_t>(placement.syncing_backups.size());
  Tell(now, "view", "",
       "view " + std::to_string(view_.id.number) + ": " +
           std::to_string(members_.CountReady(Role::kWorker)) + " workers, " +
           std::to_string(members_.CountReady(Role::kServer)) + " servers, " +
           std::to_string(view_.shards.size()) + " shards, " + std::to_string(syncing) +
           " replicas syncing");
  const std::string waiting = WaitingText();
  if (had_worker && !waiting.empty()) Tell(now, "waiting", "", "the job waits: " + waiting, true);
}

void Scheduler::IndexPrimaries() {
  primary_lanes_.clear();
  lane_committed_.clear();
  for (const ShardPlacement& placement : view_.shards) primary_lanes_.insert(placement.primary);
}

bool Scheduler::IsWorkerNamed(NodeId worker) const {
  return std::ranges::any_of(view_.owners, [&](const MicroBatchOwner& owner) {
    const bool has_handed_over = committed_ >= VersionReadBy(owner.first_step);
    return owner.worker == worker || (owner.previous == worker && !has_handed_over);
  });
}

bool Scheduler::IsServerNamed(NodeId server) const {
  return std::ranges::any_of(view_.shards, [&](const ShardPlacement& placement) {
    const auto is_it = [&](const PeerId& peer) { return peer.node == server; };
    return is_it(placement.primary) || std::ranges::any_of(placement.in_sync_backups, is_it) ||
           std::ranges::any_of(placement.syncing_backups,
                               [&](const auto& s) { return is_it(s.peer); });
  });
}

void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const ViewAck& ack) {
  Member& member = *members_.Find(envelope.sender.incarnation);
  if (is_running() && !IsOurs(ack.id, ack.generation))
    return OnNewsBeyond(now, member, ack.id, ack.generation);
  // One that speaks to an earlier life, and has the view from another member, does not know us yet.
  if (envelope.receiver.incarnation != options_.self.incarnation) return;
  ViewId& acked = member.acked_views[envelope.sender.lane];
  acked = std::max(acked, ack.id);
  for (const auto& [node, other] : members_.all()) {
    if (!other.takes_part()) continue;
    for (const PeerId& peer : other.Peers()) {
      const auto it = other.acked_views.find(peer.lane);
      if (it == other.acked_views.end() || it->second.term != term_) return;
    }
  }
  faults_.Recover(now, "scheduler");
}

std::string Scheduler::WaitingText() const {
  if (phase_ == Phase::kGathering) return "for " + MissingText();
  if (rollback_) {
    return members_.CountReady(Role::kServer) == 0 ? "no server" : "restoring the last snapshot";
  }
  const bool has_worker = std::ranges::any_of(
      view_.owners, [](const MicroBatchOwner& owner) { return owner.worker != kUnknownNode; });
  return is_running() && !has_worker ? "no worker" : "";
}

// ---- generations -------------------------------------------------------------------------------

// Whether the journal knew this view when we began, or we have made it.
bool Scheduler::IsOurs(ViewId id, uint32_t generation) const {
  if (generation != view_.generation) return generation < view_.generation;
  return id <= journal_view_ || (id.term >= journal_term_ && id <= view_.id);
}

// P26. Somebody has a view that the journal does not know: its end was lost with a disk, or another
// scheduler leads the run, and then the journal refuses us here.
void Scheduler::OnNewsBeyond(Micros now, const Member& member, ViewId id, uint32_t generation) {
  generation_seen_ = std::max(generation_seen_, generation);
  term_ = std::max(term_, id.term + 1);
  if (rollback_ || !Commit()) return;
  Tell(now, "journal-behind", member.Name(),
       member.Name() + " has a view that the journal does not know", true);
  PlanRollback(now, "the journal had lost its last views");
}

// P8: two replicas cannot say which of them is wrong.
void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const Divergence& divergence) {
  const uint32_t shard = divergence.shard.value();
  if (rollback_ || !is_running() || shard >= view_.shards.size()) return;
  if (view_.shards[shard].primary != envelope.sender) return;
  const Member* backup = members_.Find(divergence.backup.incarnation);
  if (backup == nullptr) return;
  const std::string text = members_.Find(envelope.sender.incarnation)->Name() + " and " +
                           backup->Name() + " have made different versions " +
                           std::to_string(divergence.version.value()) + " of shard " +
                           std::to_string(shard);
  Tell(now, "divergence", backup->Name(), text, true);
  if (++divergence_count_ > kDivergencesMax)
    return End(now, StopReason::kFailed, text + ", once more; test these machines' memory");
  PlanRollback(now, text);
}

void Scheduler::PlanRollback(Micros now, const std::string& reason) {
  if (rollback_) return;
  rollback_ = PendingRollback{reason, now};
  Tell(now, "lost", "", reason + ": the run begins again from its last snapshot", true);
}

void Scheduler::RollBackWhenPossible(Micros now) {
  const uint32_t servers = members_.CountReady(Role::kServer);
  const bool has_waited = now - rollback_->since >= kRestartGrace;
  if (servers == 0 || (servers < plan_.job.servers && !has_waited)) return;
  if (now < rollback_->not_before) return;
  const std::string reason = std::exchange(rollback_, std::nullopt)->reason;
  phase_ = Phase::kTraining;
  training_time_.reset();
  StartGeneration(now);
  Tell(now, "rollback", "",
       "generation " + std::to_string(view_.generation) + " begins from version " +
           std::to_string(view_.restore.version.value()) + " (" + reason + ")",
       true);
}

// A version that is to be evaluated must be made again, and so must one of a wrong gradient.
Version Scheduler::RestoreBound() const {
  const Version next = plan_.NextEvaluation(evaluated_);
  return dispute_ ? std::min(next, VersionReadBy(dispute_->step)) : next;
}

// The first view of all, or a new beginning from a complete snapshot (P21).
void Scheduler::StartGeneration(Micros now) {
  View next{.id = NextViewId()};
  const bool is_first = view_.shards.empty();
  if (!is_first) {
    next.generation = std::max(view_.generation, generation_seen_) + 1;
    next.restore = snapshots_.RestorePoint(RestoreBound());
  }
  for (const auto& [node, member] : members_.all()) {
    if (member.takes_part()) next.nodes.push_back(member.Info());
  }
  next.shards = PlaceShards(plan_.shards, RestoringServers(now, next.restore), plan_.job.replicas);
  const std::vector<WorkerSpeed> speeds = Speeds(now);
  const uint32_t count = plan_.job.micro_batches;
  std::vector<NodeId> workers = RunsOf(ShareMicroBatches(count, speeds), speeds, count);
  shared_among_.clear();
  for (const WorkerSpeed& speed : speeds) shared_among_.insert(speed.worker);
  AppointJudge(workers);
  for (NodeId worker : workers) next.owners.push_back({.worker = worker});
  committed_ = next.restore.version;
  step_at_start_ = Step(0);
  verified_.StartGeneration(StepReading(committed_));
  if (dispute_) verified_.AwaitJudge(dispute_->step, dispute_->micro_batch);
  snapshots_.StartGeneration(next.generation, next.restore);
  synced_.clear();
  silent_backups_.clear();
  view_due_at_.reset();
  evaluation_.reset();
  for (auto& [node, member] : members_.all()) member.snapshots_asked.clear();
  if (snapshot_request_) AskForSnapshot(now, 1);  // lanes forget what they were asked for
  collected_.clear();
  final_weights_.reset();
  faults_.OnRollback();
  RequestView(now + kMoveInterval);  // whoever is avoided is so for a while only
  Publish(now, std::move(next));
}

}  // namespace pando
