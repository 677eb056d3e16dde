#include "server/following.h"

namespace pando {

void Following::OnRoot(Micros now, const Envelope& envelope, const Root& root) {
  if (!CountsFor(envelope)) return;
  for (const RootItem& item : root.items) OnRootItem(now, envelope.sender, item);
  const Replica* metric = replicas_.Find(plan_.metric_shard());
  if (metric != nullptr && metric->primary() == envelope.sender)
    progress_.ForgetRowsBelow(root.first_row);
}

void Following::OnRootItem(Micros now, const PeerId& from, const RootItem& item) {
  Replica* replica = replicas_.Find(item.shard);
  if (replica == nullptr || replica->is_primary() || replica->primary() != from) return;
  Shard& shard = replica->shard;
  // While the shard loads, an empty acknowledgement tells the primary that this lane is not silent.
  if (snapshots_.IsLoading(item.shard)) acks_out_[from];
  if (item.payload.size_bytes() == 0) return Answer(*replica, item);
  const Shard::Followed followed = Follow(shard, item);
  if (followed == Shard::Followed::kRefused) return;
  if (followed == Shard::Followed::kMade) NoteMade(now, shard);
  const Version made = VersionMadeBy(item.step);
  // If a pin delays the version, the newest one is acknowledged again: the lane is not silent.
  const bool is_known =
      followed != Shard::Followed::kHeld && shard.records().KnownHash(made).has_value();
  Acknowledge(*replica, is_known ? made : shard.newest());
}

// P22. Answers a promoted primary. If this replica has made the version after the primary's newest
// one, the primary gets the root first.
void Following::Answer(const Replica& replica, const RootItem& question) {
  const Shard& shard = replica.shard;
  if (!shard.has_data()) return;
  for (const StepRoot* root : shard.RootsAfter(Version(question.step.value()))) {
    Root answer;
    answer.items.push_back({shard.id(), root->step, root->scalars, root->gradient, root->factors});
    member_.Send(replica.primary(), std::move(answer));
  }
  Acknowledge(replica, shard.newest(), /*is_answer=*/true);
}

void Following::Acknowledge(const Replica& replica, Version version, bool is_answer) {
  const std::optional<uint64_t> hash = replica.shard.records().KnownHash(version);
  acks_out_[replica.primary()].items.push_back({replica.shard.id(), version,
                                                hash ? *hash : replica.shard.records().NewestHash(),
                                                is_answer});
}

void Following::OnHashWanted(const Envelope& envelope, const HashWanted& wanted) const {
  const Replica* replica = replicas_.Find(wanted.shard);
  if (replica == nullptr || !replica->shard.has_data()) return;
  const ShardRecords& records = replica->shard.records();
  const std::optional<uint64_t> made = records.KnownHash(wanted.version);
  if (!made) return;
  const bool is_newest = wanted.version == records.newest_version();
  member_.Send(envelope.sender, RecordHashes{wanted.shard, wanted.version, *made,
                                             is_newest ? records.NewestHash() : *made});
}

void Following::OnReleasePin(Micros now) {
  for (auto& [id, replica] : replicas_.all()) {
    if (!replica.shard.FollowHeld()) continue;
    NoteMade(now, replica.shard);
    Acknowledge(replica, replica.shard.newest());
  }
}

void Following::OnChunk(const Envelope& envelope, const Chunk& chunk) {
  Replica* replica = replicas_.Find(chunk.shard);
  if (replica == nullptr || !replica->pair() || replica->primary() != envelope.sender) return;
  if (*replica->pair() != chunk.pair) return;
  Shard& shard = replica->shard;
  const IncomingTransfer::Sizes sizes{shard.records().parameter_floats(),
                                      shard.records().state_floats()};
  if (!IncomingTransfer::IsSound(chunk, sizes)) return;
  IncomingTransfer& incoming = incoming_.try_emplace(chunk.shard, chunk, sizes).first->second;
  if (!incoming.Includes(chunk)) return;
  incoming.Take(chunk);
  if (incoming.is_complete() && !shard.has_data()) shard.Install(incoming.TakeRecords());
  member_.Send(envelope.sender, incoming.Ack());
}

// Drops unsent acknowledgements, which belong to the old view, and the images of old pairs.
void Following::EnterView(const Replicas::Changes& changes) {
  acks_out_.clear();
  for (ShardId id : changes.emptied) incoming_.erase(id);
  std::erase_if(incoming_, [&](const auto& entry) {
    const Replica* replica = replicas_.Find(entry.first);
    return replica == nullptr || !replica->pair();
  });
}

}  // namespace pando
