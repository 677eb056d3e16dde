// The end of the scheduler's run: collection of the final weights, Stop (P33).
#include <algorithm>
#include <utility>

#include "scheduler/scheduler.h"

namespace pando {
namespace {

// Shards asked for at once: bounds what the final weights take in flight.
constexpr uint32_t kCollectedAtOnce = 16;
// Asked for again after as long a silence of all servers: over a slow link the shards come one
// after the other, and each repeat would put as many bytes before those that are missing.
constexpr Micros kCollectRetryFirst = std::chrono::milliseconds(500);
constexpr Micros kCollectRetryMax = std::chrono::seconds(4);
// Final weights that cannot be written are tried again, for as long as somebody may take to free
// some space. After that the run has failed, and can be resumed.
constexpr Micros kKeepRetry = std::chrono::seconds(1);
constexpr Micros kKeepPatience = std::chrono::minutes(30);

}  // namespace

void Scheduler::StartCollecting(Micros now) {
  phase_ = Phase::kCollecting;
  if (!training_time_) training_time_ = TrainingTime(now);
  collecting_since_ = now;
  unkept_since_.reset();
  final_weights_.emplace(plan_.layout.float_count());
  collected_.assign(plan_.shards.shard_count(), false);
  collect_wait_ = kCollectRetryFirst;
  Collect(now);
}

void Scheduler::CollectAgain(Micros now) {
  collect_wait_ = std::min(2 * collect_wait_, kCollectRetryMax);
  Collect(now);
}

void Scheduler::Collect(Micros now) {
  if (rollback_) return;
  std::map<PeerId, Pull> pulls;
  uint32_t asked = 0;
  for (collect_end_ = 0; collect_end_ < collected_.size() && asked < kCollectedAtOnce;
       ++collect_end_) {
    if (collected_[collect_end_]) continue;
    const ShardId shard(collect_end_);
    pulls[view_.shards[collect_end_].primary].items.push_back({shard, final_version_});
    ++asked;
  }
  for (auto& [lane, pull] : pulls) Send(lane, std::move(pull));
  collect_again_at_ = now + collect_wait_;
}

void Scheduler::OnMessageOf(Micros now, const Envelope&, const Params& params) {
  if (phase_ != Phase::kCollecting || rollback_) return;
  collect_wait_ = kCollectRetryFirst;
  collect_again_at_ = now + collect_wait_;
  for (const ParamsItem& item : params.items) {
    const uint32_t i = item.shard.value();
    if (i >= collected_.size() || collected_[i] || item.version != final_version_) continue;
    const ShardRange& range = plan_.shards.range(item.shard);
    if (item.form != ParamsForm::kExact || item.payload.floats().size() != range.size()) continue;
    std::ranges::copy(item.payload.floats(), final_weights_->data() + range.first);
    collected_[i] = true;
  }
  const auto missing = std::ranges::find(collected_, false) - collected_.begin();
  if (missing >= collect_end_) Collect(now);  // what was asked for is here
}

// P33: the weights are here, verified and kept, and so is the final snapshot, or it will never be.
void Scheduler::FinishWhenComplete(Micros now) {
  const bool has_all = std::ranges::find(collected_, false) == collected_.end();
  if (rollback_ || !has_all || !IsVerificationSettled()) return;
  if (!unkept_since_ && !IsFinalSnapshotSettled(now)) return;
  if (!AreWeightsKept(now)) return;
  final_weights_.reset();
  faults_.RecoverAll(now);
  is_finished_ = true;
  if (!Commit()) return;
  End(now, StopReason::kCompleted, "completed");
}

// The servers hold version n meanwhile. An end that the journal knows has its weights.
bool Scheduler::AreWeightsKept(Micros now) {
  if (unkept_since_ && now < keep_at_) return false;
  const Status kept = observer_.OnFinalWeights(now, final_version_, *final_weights_);
  if (kept.ok()) return true;
  keep_at_ = now + kKeepRetry;
  if (!unkept_since_) {
    unkept_since_ = now;
    Tell(now, "weights-failed", "", kept.message() + ": the run waits until they can be written",
         /*is_notable=*/true);
  }
  if (now - *unkept_since_ >= kKeepPatience)
    End(now, StopReason::kFailed, kept.message() + "; the run can be resumed");
  return false;
}

void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const Failure& failure) {
  const Member& member = *members_.Find(envelope.sender.incarnation);
  // A newcomer is of no generation yet.
  if (member.is_ready && envelope.generation != view_.generation) return;
  const bool is_machines = failure.kind == FailureKind::kMachine;
  const std::string text = member.Name() + " on " + member.registration.host + ": " + failure.text;
  if (is_running() && !member.is_ready) {  // a newcomer that cannot begin is no part of the run
    Tell(now, "failed", member.Name(), text, /*is_notable=*/true);
    return Forget(member.peer.node);
  }
  if (is_running() && is_machines && !IsGroup() && !IsTroubleOfAll(member)) {
    Tell(now, "failed", member.Name(), text, /*is_notable=*/true);
    Send(envelope.sender, Refused{"given up: " + failure.text});
    return OnDeath(now, member.peer.node, "failure", "exit");
  }
  if (phase_ < Phase::kStopping) Tell(now, "failed", member.Name(), failure.text);
  End(now, StopReason::kFailed, text);
}

// Trouble of one machine is the whole run's where it follows the work before a step is made: to
// another machine, or to the next process where there is no other; and where nobody is left.
bool Scheduler::IsTroubleOfAll(const Member& member) {
  const std::string& host = member.registration.host;
  const std::optional<Trouble> before = std::exchange(trouble_, Trouble{host, committed_});
  bool has_others = false;
  bool has_others_elsewhere = false;
  for (const auto& [node, other] : members_.all()) {
    if (&other == &member || other.role() != member.role() || !other.takes_part()) continue;
    has_others = true;
    has_others_elsewhere |= other.registration.host != host;
  }
  if (!has_others) return true;
  const bool is_repeated = before && before->committed == committed_;
  return is_repeated && (before->host != host || !has_others_elsewhere);
}

void Scheduler::End(Micros now, StopReason reason, std::string text) {
  if (phase_ >= Phase::kStopping) return;
  if (!training_time_) training_time_ = TrainingTime(now);
  phase_ = Phase::kStopping;
  stop_ = Stop{reason, std::move(text)};
  stop_at_ = now;
  repeat_at_ = now;  // say it
}

void Scheduler::OnMessageOf(Micros, const Envelope& envelope, const Bye&) {
  Member& member = *members_.Find(envelope.sender.incarnation);
  if (phase_ < Phase::kStopping && !member.is_leaving) return;
  member.left_lanes.insert(envelope.sender.lane);
  if (member.has_left()) Forget(member.peer.node);
}

void Scheduler::SendStop() {
  for (const auto& [node, member] : members_.all()) {
    for (const PeerId& peer : member.Peers()) {
      if (!member.left_lanes.contains(peer.lane)) Send(peer, *stop_);
    }
  }
}

void Scheduler::LeaveWhenAllHave(Micros now) {
  if (members_.all().empty() || now - stop_at_ >= options_.stop_grace) phase_ = Phase::kFinished;
}

}  // namespace pando
