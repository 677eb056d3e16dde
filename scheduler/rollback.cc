#include "scheduler/rollback.h"

namespace pando {
namespace {

// A rollback waits this long for the servers that the job wants: a supervisor may be about to start
// one again.
constexpr Micros kRestartGrace = std::chrono::seconds(1);
// A rollback does not repair two machines that keep making different versions.
constexpr uint32_t kDivergencesMax = 3;

}  // namespace

void Rollback::Plan(Micros now, const std::string& reason) {
  if (pending_) return;
  pending_ = Pending{reason, now};
  outbox_.Tell(now, "lost", "", reason + ": the run restarts from its last snapshot", true);
}

bool Rollback::IsPossible(Micros now, uint32_t wanted) const {
  if (!pending_) return false;
  const uint32_t servers = members_.CountReady(Role::kServer);
  const bool has_waited = now - pending_->since >= kRestartGrace;
  if (servers == 0 || (servers < wanted && !has_waited)) return false;
  return now >= pending_->not_before;
}

// Either the journal's end was lost with a disk, or another scheduler leads the run. In the second
// case the journal refuses us here.
void Rollback::OnNewsBeyond(Micros now, const Member& member, ViewId id, uint32_t generation) {
  views_.OnNewsBeyond(id, generation);
  if (pending_ || !outbox_.Commit()) return;
  outbox_.Tell(now, "journal-behind", member.Name(),
               member.Name() + " has a view that is not in the journal", true);
  Plan(now, "the journal had lost its last views");
}

// P8: two replicas cannot say which of them is wrong.
void Rollback::OnDivergence(Micros now, const PeerId& from, const Divergence& divergence) {
  const View& view = views_.view();
  const uint32_t shard = divergence.shard.value();
  if (pending_ || !phase_.is_running() || shard >= view.shards.size()) return;
  if (view.shards[shard].primary != from) return;
  const Member* backup = members_.Find(divergence.backup.incarnation);
  if (backup == nullptr) return;
  const std::string text = members_.Find(from.incarnation)->Name() + " and " + backup->Name() +
                           " have made different versions " +
                           std::to_string(divergence.version.value()) + " of shard " +
                           std::to_string(shard);
  outbox_.Tell(now, "divergence", backup->Name(), text, true);
  if (++divergence_count_ > kDivergencesMax)
    return phase_.End(now, StopReason::kFailed, text + " again; test the memory of these machines");
  Plan(now, text);
}

}  // namespace pando
