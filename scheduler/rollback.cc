#include "scheduler/rollback.h"

#include <fmt/format.h>

#include "scheduler/run_facts.h"

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
  run_.outbox.TellNotable(now, "lost", "", "{}: the run restarts from its last snapshot", reason);
}

bool Rollback::IsPossible(Micros now, uint32_t wanted) const {
  if (!pending_) return false;
  const size_t servers = run_.members().CountReady(Role::kServer);
  const bool has_waited = now - pending_->since >= kRestartGrace;
  if (servers == 0 || (servers < wanted && !has_waited)) return false;
  return now >= pending_->not_before;
}

// Either the journal's end was lost with a disk, or another scheduler leads the run. In the second
// case the journal refuses us here.
void Rollback::OnNewsBeyond(Micros now, const Member& member, ViewId id, uint32_t generation) {
  run_.views.OnNewsBeyond(id, generation);
  if (pending_ || !run_.outbox.Commit()) return;
  run_.outbox.TellNotable(now, "journal-behind", member.Name(),
                          "{} has a view that is not in the journal", member.Name());
  Plan(now, "the journal had lost its last views");
}

// P8: two replicas cannot say which of them is wrong.
void Rollback::OnDivergence(Micros now, const PeerId& from, const Divergence& divergence) {
  const View& view = run_.view();
  const uint32_t shard = divergence.shard.value();
  if (pending_ || !run_.phase.is_running() || shard >= view.shards.size()) return;
  if (view.shards[shard].primary != from) return;
  const Member* backup = run_.members().Find(divergence.backup.incarnation);
  if (backup == nullptr) return;
  const std::string text =
      fmt::format("{} and {} have made different versions {} of shard {}", run_.Sender(from).Name(),
                  backup->Name(), divergence.version.value(), shard);
  run_.outbox.TellNotable(now, "divergence", backup->Name(), "{}", text);
  if (++divergence_count_ > kDivergencesMax)
    return run_.phase.End(now, StopReason::kFailed,
                          text + " again; test the memory of these machines");
  Plan(now, text);
}

}  // namespace pando
