#include "server/lane.h"

#include <algorithm>

#include "proto/dispatch.h"
#include "proto/ownership.h"

namespace pando {

Lane::Lane(const Options& options, const JobPlan& plan, SnapshotPort& snapshots, Outbox& outbox)
    : member_(
          options.identity, outbox,
          [&plan](const View& view) { return view.shards.size() == plan.shards.shard_count(); }),
      maker_(plan),
      replicas_(member_, plan, maker_, options.buffers),
      early_(member_),
      life_(member_, options.kind),
      replies_({member_, replicas_, plan}, early_),
      scalars_(member_, replicas_, plan),
      progress_(member_, replicas_, plan),
      snapshots_({member_, replicas_, plan}, snapshots, report_clock_),
      norms_({member_, replicas_, plan}, maker_, options.lease, options.norm_peers_max),
      replication_({member_, replicas_, plan}, options.lease, progress_, report_clock_, inquiry_),
      following_({member_, replicas_, plan}, snapshots_, progress_, options.probe),
      steps_(plan, {replicas_, scalars_, norms_, replication_, inquiry_, snapshots_, progress_,
                    replies_, options.probe}),
      reports_(member_, report_clock_, {&replication_, &snapshots_}) {}

void Lane::OnMessage(Micros now, const Envelope& envelope) {
  if (!member_.Admit(now, envelope)) return;
  if (early_.IsEarly(envelope)) return early_.Keep(envelope);
  if (!IsAboutOwnShards(member_.view(), envelope)) return;
  Route(now, envelope);
}

void Lane::Route(Micros now, const Envelope& from) {
  Dispatch<Core::kLane>(
      from.message, [&](const ViewUpdate&) { OnView(now, from); },
      [&](const ViewDelta&) { OnView(now, from); },
      [&](const ViewWanted&) { member_.OnViewWanted(now, from); },
      [&](const ViewHint&) { member_.OnHint(now, from); },
      [&](const Push& push) { steps_.OnPush(now, from, push); },
      [&](const Pull& pull) { replies_.OnPull(from, pull); },
      [&](const Question& question) { replies_.OnQuestion(now, from, question); },
      [&](const Root& root) {
        following_.OnRoot(now, from, root);
        steps_.OnRoot(now, from, root);
      },
      [&](const RootAck& ack) { replication_.OnRootAck(now, from, ack); },
      [&](const Chunk& chunk) { following_.OnChunk(from, chunk); },
      [&](const ChunkAck& ack) { replication_.OnChunkAck(now, from, ack); },
      [&](const Partials& partials) { norms_.OnPartials(from, partials); },
      [&](const PartialsPull& pull) { norms_.OnPartialsPull(from, pull); },
      [&](const Scalars& scalars) {
        scalars_.OnScalars(scalars);
        steps_.AdvanceAll(now);
      },
      [&](const ProgressAck& ack) {
        // A newcomer's report may have waited until the scheduler knew the rows before its image.
        if (progress_.OnProgressAck(from, ack)) report_clock_.Hasten(now);
      },
      [&](const ReleasePin& release) {
        replicas_.ReleasePins(release.version);
        steps_.AdvanceAll(now);
        following_.OnReleasePin(now);
        member_.Send(from.sender, PinReleased{release.version});
      },
      [&](const HashWanted& wanted) { following_.OnHashWanted(from, wanted); },
      [&](const SnapshotAt& at) { snapshots_.OnSnapshotAt(now, from, at); },
      [&](const SnapshotAck& ack) { snapshots_.OnSnapshotAck(ack); },
      [&](const Stop& stop) { life_.OnStop(from, stop); },
      [&](const Refused& refused) { life_.OnRefused(refused); });
}

void Lane::OnSnapshotEvent(Micros now, SnapshotEvent event) {
  const std::optional<ShardId> restored = snapshots_.OnEvent(now, std::move(event));
  if (restored) steps_.OnRestored(now, *restored);
}

// ---- views -------------------------------------------------------------------------------------

void Lane::OnView(Micros now, const Envelope& envelope) {
  steps_.MakeSealed();  // under the view in which it was sealed
  if (member_.OnView(now, envelope)) EnterView(now);
}

void Lane::EnterView(Micros now) {
  if (view().generation != generation_) EnterGeneration();
  const Replicas::Changes changes = replicas_.EnterView();
  snapshots_.EnterView(now, changes);
  replication_.EnterView(now, changes.promoted);
  following_.EnterView(changes);
  replies_.EnterView();
  progress_.EnterView(now, changes);
  norms_.EnterView(now);
  for (const Envelope& envelope : early_.Take()) OnMessage(now, envelope);
}

// P21: a lane discards all state when it enters a newer generation.
void Lane::EnterGeneration() {
  generation_ = view().generation;
  replicas_.Clear();
  snapshots_.Clear();
  replication_.Clear();
  following_.Clear();
  replies_.Clear();
  progress_.Clear();
  norms_.Clear();
  scalars_.Clear();
}

// ---- the tick ----------------------------------------------------------------------------------

void Lane::Tick(Micros now) {
  if (finished()) return;
  replication_.Tick(now);
  steps_.AdvanceByNorms(now);
  norms_.Tick(now);
  replication_.SendRoots(now);
  steps_.Tick(now);
  following_.Tick();
  replies_.Tick(now);
  life_.Tick(now);
  scalars_.Tick(now);
  progress_.Tick(now);
  reports_.Tick(now);
}

Micros Lane::NextDeadline() const {
  if (finished()) return kNever;
  return std::min({replication_.NextDeadline(), norms_.NextDeadline(), steps_.NextDeadline(),
                   replies_.NextDeadline(), life_.NextDeadline(), scalars_.NextDeadline(),
                   progress_.NextDeadline(), reports_.NextDeadline()});
}

}  // namespace pando
