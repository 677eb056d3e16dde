#include "tests/sim/checker.h"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <tuple>

#include "common/hash.h"
#include "proto/assignment.h"
#include "tests/sim/trace.h"

namespace pando::sim {
namespace {

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::string Text(uint64_t value) { return std::to_string(value); }
std::string Text(ShardId shard) { return "shard " + Text(shard.value()); }
std::string Text(Version version) { return "version " + Text(version.value()); }

}  // namespace

void Checker::Fail(std::string what) {
  if (!failure_) failure_ = what + " at " + std::to_string(world_.now().count()) + " us";
}

Checker::Shown& Checker::ShownIn(uint32_t generation) {
  auto [it, is_new] = shown_.try_emplace(generation);
  if (is_new) {
    const Version start =
        view_ && view_->generation == generation ? view_->restore.version : Version(0);
    it->second.shown.assign(plan_.shards.shard_count(), start);
    it->second.committed = it->second.shown;
    it->second.everywhere = start;
  }
  return it->second;
}

// ---- what is sent ------------------------------------------------------------------------------

void Checker::OnSent(const Envelope& envelope) {
  if (const auto* push = std::get_if<Push>(&envelope.message)) CheckPush(envelope, *push);
  if (const auto* params = std::get_if<Params>(&envelope.message)) CheckParams(envelope, *params);
  if (const auto* update = std::get_if<ViewUpdate>(&envelope.message)) CheckView(update->view);
  if (const auto* synced = std::get_if<Synced>(&envelope.message)) {
    for (const SyncedItem& item : synced->items) {
      synced_.insert({item.shard, item.newcomer, item.pair});
    }
  }
  if (const auto* silent = std::get_if<PeerSilent>(&envelope.message)) {
    CheckSilence(envelope, *silent);
  }
  NoteCodecs(envelope);
  if (plan_.may_sum_on_host()) NoteGift(envelope);
}

// P4: a contribution to step t proves that version t is committed everywhere.
void Checker::CheckPush(const Envelope& envelope, const Push& push) {
  const Shown& shown = ShownIn(envelope.generation);
  for (const PushItem& item : push.items) {
    if (shown.everywhere >= VersionReadBy(item.step)) continue;
    Fail("P4: step " + Text(item.step.value()) + " is pushed before version " +
         Text(item.step.value()) + " is committed everywhere; some shard is at " +
         Text(shown.everywhere));
  }
  if (!coverage_.Has(Event::kSpeculation) && !coverage_.Has(Event::kHostSum))
    NoteSpeculation(envelope, push);
}

void Checker::NoteSpeculation(const Envelope& envelope, const Push& push) {
  if (!view_ || view_->id != envelope.view || push.items.empty()) return;
  const PushItem& item = push.items.front();
  const Process* receiver = FindProcess(envelope.receiver.incarnation);
  if (receiver == nullptr || receiver->seat().role != Role::kServer) return;
  const MicroBatchTree tree = plan_.steps.Tree(item.step);
  const std::vector<MicroBatch> own = AssignedTo(*view_, envelope.sender.node, item.step, tree);
  const MicroBatchRange range = tree.Range(item.node);
  for (uint32_t m = range.first; m < range.last; ++m) {
    const bool is_own = std::ranges::find(own, MicroBatch(m)) != own.end();
    if (!tree.IsPresent(MicroBatch(m)) || is_own) continue;
    return coverage_.Note(plan_.may_sum_on_host() ? Event::kHostSum : Event::kSpeculation);
  }
}

// P6a.
void Checker::NoteGift(const Envelope& envelope) {
  const Process* receiver = FindProcess(envelope.receiver.incarnation);
  if (receiver == nullptr || receiver->seat().role != Role::kWorker) return;
  if (std::holds_alternative<Push>(envelope.message)) coverage_.Note(Event::kGiven);
  if (std::holds_alternative<Question>(envelope.message)) coverage_.Note(Event::kRelayAsked);
}

void Checker::NoteCodecs(const Envelope& envelope) {
  const auto note = [this](Event first, PayloadCodec codec) {
    const auto index = static_cast<size_t>(codec) - static_cast<size_t>(PayloadCodec::kFp16);
    coverage_.Note(static_cast<Event>(static_cast<size_t>(first) + index));
  };
  if (const auto* push = std::get_if<Push>(&envelope.message); push && !plan_.pushes.is_exact()) {
    note(Event::kFp16Pushes, plan_.job.push_codec);
    if (plan_.pushes.has_feedback()) NoteFeedback(envelope, *push);
  }
  if (const auto* params = std::get_if<Params>(&envelope.message);
      params && !plan_.pulls.is_exact()) {
    const auto is_encoded = [](const ParamsItem& item) {
      return item.form == ParamsForm::kEncoded;
    };
    if (std::ranges::any_of(params->items, is_encoded))
      note(Event::kFp16Pulls, plan_.job.pull_codec);
  }
}

void Checker::NoteFeedback(const Envelope& envelope, const Push& push) {
  for (const PushItem& item : push.items) {
    const MicroBatch m(plan_.steps.Tree(item.step).Range(item.node).first);
    const std::pair now(item.step, envelope.sender.incarnation);
    auto& [step, worker] = newest_pushes_.try_emplace(m, now).first->second;
    if (NextStep(step) == item.step)
      coverage_.Note(worker == now.second ? Event::kFeedback : Event::kFeedbackGone);
    if (step < item.step) std::tie(step, worker) = now;
  }
}

// I4, I5: a shown version is whole and equals the serial run's. P9, I2: every replica that must
// have it has it.
void Checker::CheckParams(const Envelope& envelope, const Params& params) {
  Shown& shown = ShownIn(envelope.generation);
  const bool is_tainted = tainted_generation_ && envelope.generation <= *tainted_generation_;
  for (const ParamsItem& item : params.items) {
    if (item.version > plan_.steps.final_version()) return Fail("I4: no such version");
    if (!is_tainted && item.version > decided_) {
      Fail("P32: " + Text(item.version) + " is shown, and nothing beyond " + Text(decided_) +
           " is decided");
    }
    const bool is_exact = item.form == ParamsForm::kExact;
    const bool is_right =
        is_exact ? SameBits(item.payload.floats(), reference_.ShardAt(item.shard, item.version))
                 : SameBits(Received(plan_.pulls, item.shard, item.payload),
                            reference_.ShownAt(item.shard, item.version));
    if (!is_tainted && !HasOwnBits() && !is_right) {
      Fail("I5: " + Text(item.version) + " of " + Text(item.shard) +
           " differs from the serial run's");
    }
    Version& newest = shown.shown[item.shard.value()];
    if (item.version <= newest) continue;
    newest = item.version;
    Version& committed = shown.committed[item.shard.value()];
    committed = std::max(committed, item.version);  // else CheckHeld fails
    CheckHeld(item.shard);
  }
  shown.everywhere = std::ranges::min(shown.committed);
}

// I3: an id names one view, for any sender.
void Checker::CheckView(const View& view) {
  const uint64_t hash = Hash64(ViewText(view));
  const auto [it, is_new] = view_hashes_.try_emplace(view.id, hash);
  if (!is_new && it->second != hash) {
    Fail("I3: two views are called " + Text(view.id.term) + "." + Text(view.id.number));
  }
}

// P10, P23: lost messages are repeated, so no peer is silent for two leases without a reason.
void Checker::CheckSilence(const Envelope& envelope, const PeerSilent& silent) {
  const Incarnation here = envelope.sender.incarnation;
  const Incarnation there = silent.peer.incarnation;
  const bool is_explained = is_noisy_ || IsUnreachable(here) || IsUnreachable(there) ||
                            IsSchedulerInTrouble() || IsLate(disk_.troubled_until());
  if (is_explained) {
    silent_at_[here] = silent_at_[there] = world_.now();
    return;
  }
  Fail("P10: node " + Text(envelope.sender.node.value()) + " calls node " +
       Text(silent.peer.node.value()) + " silent, though nothing keeps its messages back");
}

// ---- what is done ------------------------------------------------------------------------------

void Checker::OnLaneEvent(const Lane& lane) {
  if (!lane.has_view()) return;
  constexpr uint64_t kLookAtBoundsEvery = 16;
  const bool looks_at_bounds = ++lane_events_ % kLookAtBoundsEvery == 0;
  Shown& shown = ShownIn(lane.view().generation);
  bool is_news = false;
  for (const auto& [id, replica] : lane.replicas()) {
    if (!replica.shard.has_data()) continue;
    if (replica.is_primary()) {
      Version& committed = shown.committed[id.value()];
      is_news |= replica.shard.committed() > committed;
      committed = std::max(committed, replica.shard.committed());
    }
    if (replica.shard.newest().value() > replica.shard.committed().value() + 1) {
      Fail("I6: " + Text(id) + " has more than one uncommitted version");
    }
    if (looks_at_bounds && replica.shard.held_nodes().size() > plan_.job.micro_batches / 2 + 1) {
      Fail("I6: pending nodes");
    }
  }
  if (is_news) shown.everywhere = std::ranges::min(shown.committed);
}

void Checker::OnSessionEvent(const Session& session) {
  const size_t pushes_max = plan_.shards.shard_count() * plan_.job.micro_batches * 2;
  if (session.unreplied_count() > pushes_max) Fail("I6: unreplied gradients");
}

void Checker::OnLost(const Process& process) {
  if (process.seat().role != Role::kServer) return;
  if (is_scheduler_away_) may_lack_rows_ = true;
  CheckAllHeld();
}

// P33: a server leaves once no shard names it.
void Checker::OnLeft(const Process& process) {
  if (process.seat().role == Role::kServer) CheckAllHeld();
}

// ---- I2 ----------------------------------------------------------------------------------------

const Process* Checker::FindProcess(Incarnation incarnation) const {
  for (const auto& process : processes_) {
    if (process->is_alive() && process->incarnation() == incarnation) return process.get();
  }
  return nullptr;
}

Checker::Holds Checker::HoldsVersion(const PeerId& peer, ShardId shard, Version version) const {
  const Process* process = FindProcess(peer.incarnation);
  if (process == nullptr || peer.lane >= process->lanes().size()) return Holds::kLost;
  const Lane& lane = *process->lanes()[peer.lane];
  // Between the view that makes it a replica and its arrival there the lane has what it was given.
  if (lane.view().generation < generation_) return Holds::kNo;
  if (lane.view().generation > generation_) return Holds::kYes;  // it knows better than the journal
  const auto replica = lane.replicas().find(shard);
  if (replica == lane.replicas().end() || !replica->second.shard.has_data()) return Holds::kNo;
  return replica->second.shard.newest() >= version ? Holds::kYes : Holds::kNo;
}

// Every in-sync replica of the newest view has every version that its generation showed. So the
// loss of replicas − 1 servers loses nothing.
void Checker::CheckHeld(ShardId shard) {
  if (!view_ || shard.value() >= view_->shards.size()) return;
  const Version shown = ShownIn(generation_).shown[shard.value()];
  if (shown <= view_->restore.version) return;  // it is in files, or follows from the seed
  const ShardPlacement& placement = view_->shards[shard.value()];
  const auto check = [&](const PeerId& peer) {
    if (peer.node == kUnknownNode || HoldsVersion(peer, shard, shown) != Holds::kNo) return;
    Fail("I2: " + Text(shown) + " of " + Text(shard) + " has been shown, and node " +
         Text(peer.node.value()) + "." + Text(peer.lane) + ", in sync by view " +
         Text(view_->id.number) + ", does not have it");
  };
  check(placement.primary);
  for (const PeerId& backup : placement.in_sync_backups) check(backup);
}

void Checker::CheckAllHeld() {
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) CheckHeld(ShardId(s));
}

// ---- metrics, evaluations, weights -------------------------------------------------------------

void Checker::OnStepMetrics(const StepMetrics& metrics) {
  if (metrics.step < next_row_) return;  // by a scheduler that does not know of its successor
  if (metrics.step > next_row_) {
    if (!may_lack_rows_) Fail("metric rows are left out");
    coverage_.Note(Event::kRowGap);
  }
  next_row_ = NextStep(metrics.step);
  if (tainted_generation_ || HasOwnBits()) return;
  const float* row = reference_.ShardAt(plan_.metric_shard(), VersionMadeBy(metrics.step)).data() +
                     plan_.metric_offset();
  if (row[kMetricLoss] != metrics.loss) Fail("metrics differ from the serial run's");
}

bool Checker::CheckEvaluation(const EvaluationSummary& summary) {
  if (HasOwnBits() || (tainted_generation_ && generation_ <= *tainted_generation_)) return true;
  const EvaluationTotals totals =
      EvaluateAll(plan_, reference_.DigestAt(summary.version), summary.version);
  if (totals.correct_count == summary.correct_count && totals.loss_sum == summary.loss_sum &&
      totals.sample_count == summary.sample_count) {
    return true;
  }
  Fail("P31: the evaluation of " + Text(summary.version) + " is wrong");
  return false;
}

void Checker::OnEvaluation(const EvaluationSummary& summary) {
  coverage_.Note(Event::kEvaluation);
  CheckEvaluation(summary);
}

void Checker::OnFinalWeights(Version version, const FloatBuffer& flat) {
  has_final_weights_ = true;
  if (version != reference_.final_version()) Fail("P32: the run ends with " + Text(version));
  if (version != plan_.steps.final_version()) coverage_.Note(Event::kEarlyStop);
  const bool is_right = SameBits(flat.span(), reference_.FlatAt(reference_.final_version()));
  if (!is_right && !HasOwnBits()) Fail("I5: final weights differ");
}

void Checker::CheckEnd(const SchedulerState& state) {
  if (!has_final_weights_) Fail("ended without final weights");
  const uint64_t step_count = reference_.final_version().value();
  if (next_row_.value() != step_count) {
    if (!may_lack_rows_) Fail("the last metric rows are missing");
    coverage_.Note(Event::kRowGap);
  }
  std::set<Version> evaluated;
  for (const EvaluationSummary& summary : state.evaluations) {
    if (!evaluated.insert(summary.version).second) Fail("a version is evaluated twice");
    CheckEvaluation(summary);
  }
  for (uint64_t v = 1; v <= step_count; ++v) {
    if (plan_.IsEvaluationDue(Version(v)) && !evaluated.contains(Version(v))) {
      Fail("P31: " + Text(Version(v)) + " is not evaluated");
    }
  }
}

}  // namespace pando::sim
