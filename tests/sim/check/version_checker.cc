#include "tests/sim/check/version_checker.h"

#include <algorithm>

namespace pando::sim {

VersionChecker::Shown& VersionChecker::ShownIn(uint32_t generation) {
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

// P4: a contribution to a step proves that the version that it reads is committed everywhere.
void VersionChecker::CheckPush(const Envelope& envelope, const Push& push) {
  const Shown& shown = ShownIn(envelope.generation);
  for (const PushItem& item : push.items) {
    const Version read = plan_.steps.VersionReadBy(item.step);
    if (shown.everywhere >= read) continue;
    verdict_.Fail("P4: step " + Text(item.step.value()) + " is pushed before version " +
                  Text(read) + " is committed everywhere; some shard is at " +
                  Text(shown.everywhere));
  }
}

// I4, I5: a shown version is whole and equals the serial run's. P9, I2: every replica that must
// have it has it.
void VersionChecker::CheckParams(const Envelope& envelope, const Params& params) {
  Shown& shown = ShownIn(envelope.generation);
  const bool is_tainted = truth_.IsTainted(envelope.generation);
  for (const ParamsItem& item : params.items) {
    if (item.version > plan_.steps.final_version()) return verdict_.Fail("I4: no such version");
    if (!is_tainted && item.version > decided_) {
      verdict_.Fail("P32: " + Text(item.version) + " is shown, and nothing beyond " +
                    Text(decided_) + " is decided");
    }
    const bool is_exact = item.form == ParamsForm::kExact;
    const bool is_right = is_exact ? SameBits(item.payload.floats(),
                                              truth_.reference().ShardAt(item.shard, item.version))
                                   : SameBits(Received(plan_.pulls, item.shard, item.payload),
                                              truth_.reference().ShownAt(item.shard, item.version));
    if (!is_tainted && !truth_.HasOwnBits() && !is_right) {
      verdict_.Fail("I5: " + Text(item.version) + " of " + Text(item.shard) +
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

void VersionChecker::OnLaneEvent(const Lane& lane) {
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
      verdict_.Fail("I6: " + Text(id) + " has more than one uncommitted version");
    }
    const Step step = StepUpdating(replica.shard.committed());
    const Step last = plan_.steps.LastStepToSend(replica.shard.committed());
    for (Step held = step; looks_at_bounds && held <= last; held = NextStep(held)) {
      if (replica.shard.held_nodes(held).size() > plan_.job.micro_batches / 2 + 1)
        verdict_.Fail("I6: pending nodes");
    }
  }
  if (is_news) shown.everywhere = std::ranges::min(shown.committed);
}

void VersionChecker::OnSessionEvent(const Session& session) {
  const size_t pushes_max =
      plan_.shards.shard_count() * plan_.job.micro_batches * plan_.steps.versions_kept();
  if (session.unreplied_count() > pushes_max) verdict_.Fail("I6: unreplied gradients");
}

// ---- I2 ----------------------------------------------------------------------------------------

VersionChecker::Holds VersionChecker::HoldsVersion(const PeerId& peer, ShardId shard,
                                                   Version version) const {
  const Process* process = FindProcess(processes_, peer.incarnation);
  if (process == nullptr || process->member() == nullptr) return Holds::kLost;
  const std::vector<Lane*>& lanes = process->member()->lanes();
  if (peer.lane >= lanes.size()) return Holds::kLost;
  const Lane& lane = *lanes[peer.lane];
  // Between the view that makes it a replica and its arrival there the lane has what it was given.
  if (lane.view().generation < generation()) return Holds::kNo;
  if (lane.view().generation > generation())
    return Holds::kYes;  // it knows better than the journal
  const auto replica = lane.replicas().find(shard);
  if (replica == lane.replicas().end() || !replica->second.shard.has_data()) return Holds::kNo;
  return replica->second.shard.newest() >= version ? Holds::kYes : Holds::kNo;
}

// Every in-sync replica of the newest view has every version that its generation showed. So the
// loss of replicas − 1 servers loses nothing.
void VersionChecker::CheckHeld(ShardId shard) {
  if (!view_ || shard.value() >= view_->shards.size()) return;
  if (lost_generation_ && generation() <= *lost_generation_) return;
  const Version shown = ShownIn(generation()).shown[shard.value()];
  if (shown <= view_->restore.version) return;  // it is in files, or follows from the seed
  const ShardPlacement& placement = view_->shards[shard.value()];
  const auto check = [&](const PeerId& peer) {
    if (peer.node == kUnknownNode || HoldsVersion(peer, shard, shown) != Holds::kNo) return;
    verdict_.Fail("I2: " + Text(shown) + " of " + Text(shard) + " has been shown, and node " +
                  Text(peer.node.value()) + "." + Text(peer.lane) + ", in sync by view " +
                  Text(view_->id.number) + ", does not have it");
  };
  check(placement.primary);
  for (const PeerId& backup : placement.in_sync_backups) check(backup);
}

void VersionChecker::CheckAllHeld() {
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) CheckHeld(ShardId(s));
}

}  // namespace pando::sim
