// The lane towards workers: pushes, pulls and their answers; and its tick.
#include "server/lane.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "common/mutation.h"
#include "proto/message_parts.h"
#include "server/lane_limits.h"

namespace pando {
namespace {

constexpr TreeNode kPulled{0};  // the node that a reply to a pull names

Version WantedBy(const PushItem& item) { return VersionMadeBy(item.step); }
Version WantedBy(const PullItem& item) { return item.version; }
TreeNode NodeOf(const PushItem& item) { return item.node; }
TreeNode NodeOf(const PullItem&) { return kPulled; }

}  // namespace

Lane::Lane(const Options& options, const JobPlan& plan, SnapshotPort& snapshots, Outbox& outbox)
    : kind_(options.kind),
      lease_(options.lease),
      probe_(options.probe),
      buffers_(options.buffers),
      plan_(plan),
      snapshots_(snapshots),
      member_(options.identity, outbox),
      optimizer_(plan.job.optimizer, plan.layout),
      partial_plan_(plan.job.optimizer, plan.layout, plan.shards),
      partials_silence_(2 * options.lease) {}

Version Lane::committed() const {
  Version lowest = plan_.steps.final_version();
  for (const auto& [id, replica] : replicas_) {
    if (!replica.is_primary()) continue;
    const bool is_whole = replica.shard.has_data();
    lowest = std::min(lowest, is_whole ? replica.shard.committed() : view().restore.version);
  }
  return lowest;
}

bool Lane::is_primary_of_any() const {
  return std::ranges::any_of(replicas_ | std::views::values, &Replica::is_primary);
}

void Lane::OnMessage(Micros now, const Envelope& envelope) {
  if (!member_.Admit(now, envelope)) return;
  if (IsEarly(envelope)) return KeepEarly(envelope);
  std::visit([&](const auto& message) { OnMessageOf(now, envelope, message); }, envelope.message);
}

Replica* Lane::FindPrimary(ShardId shard) {
  auto it = replicas_.find(shard);
  return it != replicas_.end() && it->second.is_primary() ? &it->second : nullptr;
}

void Lane::OnMessageOf(Micros now, const Envelope& envelope, const Push& push) {
  const PeerId& from = envelope.sender;
  Push others;
  for (const PushItem& item : push.items) {
    Replica* replica = FindPrimary(item.shard);
    if (replica == nullptr) others.items.push_back(item);
    if (replica == nullptr || !replica->shard.has_data()) continue;
    const Shard::Taken taken = Add(*replica, item);
    if (taken == Shard::Taken::kRefused) continue;
    const bool is_duplicate = taken == Shard::Taken::kDuplicate;
    TryAdvance(now, *replica);
    // Of a worker's many leaves the last may be computed long after the first.
    const bool says_pending = is_duplicate || !plan_.pushes.is_exact();
    AnswerFor(from, *replica, {item.node, VersionMadeBy(item.step), plan_.training_form()},
              says_pending);
  }
  if (!others.items.empty()) AnswerNotPrimary(envelope, std::move(others));
}

Shard::Taken Lane::Add(Replica& replica, const PushItem& item) {
  const ProbedWork work(probe_, LaneWork::kAggregate, item.shard, item.step);
  return replica.shard.Add(item);
}

void Lane::OnMessageOf(Micros, const Envelope& envelope, const Pull& pull) {
  Pull others;
  for (const PullItem& item : pull.items) {
    Replica* replica = FindPrimary(item.shard);
    if (replica == nullptr) others.items.push_back(item);
    if (replica == nullptr || item.version > plan_.steps.final_version()) continue;
    AnswerFor(envelope.sender, *replica, {kPulled, item.version, item.form},
              /*says_pending=*/true);
  }
  if (!others.items.empty()) AnswerNotPrimary(envelope, std::move(others));
}

// We may be the primary in the view that the asker has.
template <class M>
void Lane::AnswerNotPrimary(const Envelope& envelope, M others) {
  if (envelope.view > view().id) {
    Envelope early = envelope;
    early.message = std::move(others);
    return KeepEarly(std::move(early));
  }
  for (const auto& item : others.items) {
    replies_out_[envelope.sender].items.push_back({.shard = item.shard,
                                                   .version = WantedBy(item),
                                                   .node = NodeOf(item),
                                                   .outcome = PushOutcome::kNotPrimary});
  }
}

// P9, P10: a committed version that is kept, or why there is none. A fresh push gets no Pending:
// its reply follows by itself, and if it was lost we are asked. While a shard is being
// restored every version is to come.
void Lane::AnswerFor(const PeerId& peer, Replica& replica, const Wanted& wanted,
                     bool says_pending) {
  Shard& shard = replica.shard;
  if (std::optional<Blob> payload = shard.Show(wanted.version, wanted.form)) {
    auto& items = params_out_[peer].items;
    const auto is_same = [&](const ParamsItem& item) {
      return item.shard == shard.id() && item.version == wanted.version && item.form == wanted.form;
    };
    if (std::ranges::none_of(items, is_same))
      items.push_back({shard.id(), wanted.version, *std::move(payload), wanted.form});
  } else if (shard.IsGone(wanted.version)) {
    if (Mutated(Mutation::kNoBehind)) return;
    replies_out_[peer].items.push_back({.shard = shard.id(),
                                        .version = wanted.version,
                                        .node = wanted.node,
                                        .outcome = PushOutcome::kBehind,
                                        .current = shard.committed()});
  } else {
    replica.waiting[{peer.incarnation, wanted.form}] = {peer, wanted.version};
    if (!says_pending) return;
    replies_out_[peer].items.push_back({.shard = shard.id(),
                                        .version = wanted.version,
                                        .node = wanted.node,
                                        .outcome = PushOutcome::kPending});
  }
}

void Lane::OnMessageOf(Micros now, const Envelope& envelope, const Question& question) {
  if (question.view != view().id) {  // P17: the answer would be of another view
    if (question.view < view().id) member_.HintView(now, envelope.sender);
    return;
  }
  SendReplies(envelope.sender);      // who asks takes what we have not replied for lost (P10)
  Answer answer{question.view, {}};  // less the shards that are being restored: asked for again
  for (const auto& [id, replica] : replicas_) {
    if (!replica.is_primary() || !replica.shard.has_data()) continue;
    answer.items.push_back({id, replica.shard.committed(), replica.shard.held_nodes()});
  }
  member_.Send(envelope.sender, std::move(answer));
}

void Lane::OnMessageOf(Micros now, const Envelope& envelope, const ReleasePin& release) {
  released_ = std::max(released_, release.version);
  for (auto& [id, replica] : replicas_) {
    replica.shard.ReleasePin(release.version);
    // The pin may have been in the way.
    if (replica.is_primary()) TryAdvance(now, replica);
    if (!replica.shard.FollowHeld()) continue;
    NoteMetrics(replica.shard);
    Acknowledge(replica, replica.shard.newest());
  }
  member_.Send(envelope.sender, PinReleased{release.version});
}

// ---- the next version --------------------------------------------------------------------------

// Without backups the record is made and committed on the spot. With them the root goes out first,
// so that everybody makes the record at the same time: ours is made in Tick, behind FlushRoots.
void Lane::TryAdvance(Micros now, Replica& replica) {
  Shard& shard = replica.shard;
  const StepScalars* scalars = shard.is_ready() ? FindScalars(shard.step()) : nullptr;
  if (scalars == nullptr) return;
  std::optional<std::vector<float>> factors = FactorsOf(now, replica, *scalars);
  if (!factors) return;
  if (replica.backups.empty()) {
    MakeNext(replica, [&] { shard.MakeAlone(*scalars, *std::move(factors)); });
    return Commit(now, replica);
  }
  shard.Seal(*scalars, *std::move(factors));
  if (probe_ != nullptr) probe_->OnReplicating(shard.id(), shard.step());
  for (Backup& backup : replica.backups) {
    if (backup.TakesRoots()) GatherRoots(now, replica, backup, shard.newest());
  }
  sealed_.insert(shard.id());
}

void Lane::MakeSealed() {
  for (ShardId id : std::exchange(sealed_, {})) {
    Replica* replica = FindPrimary(id);
    if (replica == nullptr || !replica->shard.is_sealed()) continue;
    MakeNext(*replica, [&] { replica->shard.MakeSealed(); });
    if (Mutated(Mutation::kShowUncommitted)) ReplyToWaiting(*replica);
    acknowledged_.insert(id);
  }
}

template <class Make>
void Lane::MakeNext(Replica& replica, const Make& make) {
  Shard& shard = replica.shard;
  const ProbedWork work(probe_, LaneWork::kUpdate, shard.id(), shard.step());
  make();
  NoteMetrics(shard);
}

// P9: from now on the version is shown.
void Lane::Commit(Micros now, Replica& replica) {
  Show(now, replica);
  TryAdvance(now, replica);  // a promoted one may hold the next step's contributions
}

void Lane::Show(Micros now, Replica& replica) {
  Shard& shard = replica.shard;
  shard.Commit();
  const Step made_by(shard.newest().value() - 1);
  if (probe_ != nullptr) probe_->OnCommitted(shard.id(), made_by);
  const ProbedWork work(probe_, LaneWork::kCommit, shard.id(), made_by);
  const auto is_syncing = [](const Backup& backup) { return backup.pair.has_value(); };
  if (std::ranges::none_of(replica.backups, is_syncing)) shard.ForgetRoots();
  StoreIfDue(now, replica);
  StartTransfers(now, replica);
  ReplyToWaiting(replica);
}

void Lane::ReplyToWaiting(Replica& replica) {
  auto& waiting = replica.waiting;
  for (auto it = waiting.begin(); it != waiting.end();) {
    const auto& [peer, version] = it->second;
    const ParamsForm form = it->first.second;
    std::optional<Blob> payload = replica.shard.Show(version, form);
    const bool is_there = payload.has_value();
    if (is_there)
      params_out_[peer].items.push_back({replica.shard.id(), version, *std::move(payload), form});
    it = is_there ? waiting.erase(it) : std::next(it);
  }
}

void Lane::FlushReplies(Micros now) {
  for (auto& [peer, reply] : replies_out_) member_.Send(peer, std::move(reply));
  replies_out_.clear();
  const bool is_worth_waiting = !params_out_.empty() && !HasFullMessage(params_out_) &&
                                VersionsDiffer([](const Shard& s) { return s.committed(); });
  if (IsHeld(now, is_worth_waiting, &params_held_until_)) return;
  while (!params_out_.empty()) SendReplies(params_out_.begin()->first);
}

void Lane::SendReplies(PeerId peer) {
  if (auto reply = replies_out_.extract(peer)) member_.Send(peer, std::move(reply.mapped()));
  auto params = params_out_.extract(peer);
  if (params.empty()) return;
  for (auto& items : InMessages(std::move(params.mapped().items)))
    member_.Send(peer, Params{std::move(items)});
}

// A sealed step counts as made: its root is among those gathered.
void Lane::FlushRoots(Micros now) {
  const auto made = [](const Shard& shard) {
    return shard.is_sealed() ? VersionMadeBy(shard.step()) : shard.newest();
  };
  const bool is_worth_waiting =
      !roots_out_.empty() && !HasFullMessage(roots_out_) && VersionsDiffer(made);
  if (IsHeld(now, is_worth_waiting, &roots_held_until_)) return;
  const bool has_rows = FindPrimary(plan_.metric_shard()) != nullptr;
  for (auto& [peer, root] : roots_out_) {
    for (auto& items : InMessages(std::move(root.items)))
      member_.Send(peer, Root{std::move(items), has_rows ? known_row_ : Step(0)});
  }
  roots_out_.clear();
}

// ---- the tick ----------------------------------------------------------------------------------

void Lane::Tick(Micros now) {
  if (finished()) return;
  RepeatReplication(now);
  AdvanceByPartials(now);
  FlushPartials(now);
  PullPartials(now);
  FlushRoots(now);
  MakeSealed();
  CommitAcknowledged(now);
  FlushAcks();
  FlushReplies(now);
  if (member_.self().lane == 0 && !has_view() && now >= ready_at_) {
    member_.SendToScheduler(Ready{.kind = kind_});
    ready_at_ = now + kRetryInterval;
  }
  AskForScalars(now);
  ReportProgress(now);
  RepeatReports(now);
}

Micros Lane::NextDeadline() const {
  if (finished()) return kNever;
  if (!sealed_.empty() || has_partials_news_) return Micros(0);
  Micros deadline = std::min(repeat_at_, speak_at_);
  if (!has_view()) return member_.self().lane == 0 ? std::min(deadline, ready_at_) : deadline;
  deadline = std::min(deadline, params_held_until_.value_or(kNever));
  deadline = std::min(deadline, roots_held_until_.value_or(kNever));
  deadline = std::min(deadline, partials_held_until_.value_or(kNever));
  if (awaits_partials_) deadline = std::min(deadline, pull_partials_at_);
  deadline = std::min(deadline, partials_silence_.NextDeadline());
  if (LacksScalars()) deadline = std::min(deadline, ask_scalars_at_);
  if (HasProgressToReport()) deadline = std::min(deadline, report_at_);
  return deadline;
}

}  // namespace pando
