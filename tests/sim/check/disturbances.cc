#include "tests/sim/check/disturbances.h"

#include <algorithm>

namespace pando::sim {
namespace {

// A silence is explained for so long after its cause: two leases and a lease's grace (P23).
constexpr int kLeasesDisturbed = 4;

}  // namespace

Process* FindProcess(const Processes& processes, Incarnation incarnation) {
  for (const auto& process : processes) {
    if (process->is_alive() && process->incarnation() == incarnation) return process.get();
  }
  return nullptr;
}

// P10, P23: lost messages are repeated, so no peer is silent for two leases without a reason.
void Disturbances::CheckSilence(const Envelope& envelope, const PeerSilent& silent) {
  const Incarnation here = envelope.sender.incarnation;
  const Incarnation there = silent.peer.incarnation;
  const bool is_explained = around_.is_noisy || IsUnreachable(here) || IsUnreachable(there) ||
                            IsSchedulerInTrouble() || IsLate(around_.disk.troubled_until());
  if (is_explained) {
    silent_at_[here] = silent_at_[there] = around_.world.now();
    return;
  }
  verdict_.Fail("P10: node " + Text(envelope.sender.node.value()) + " calls node " +
                Text(silent.peer.node.value()) + " silent, though nothing keeps its messages back");
}

bool Disturbances::IsLate(Micros end) const {
  return around_.world.now() <=
         end + kLeasesDisturbed * std::chrono::milliseconds(around_.plan.job.lease_ms);
}

bool Disturbances::IsDisturbed(const Process& process) const {
  const auto silent = silent_at_.find(process.incarnation());
  return process.is_stopped() || IsLate(process.disturbance().disturbed_until()) ||
         (silent != silent_at_.end() && IsLate(silent->second));
}

bool Disturbances::IsUnreachable(Incarnation incarnation) const {
  const Process* process = FindProcess(around_.processes, incarnation);
  return process == nullptr || process->is_stopped() ||
         IsLate(process->disturbance().unreachable_until());
}

bool Disturbances::IsSchedulerInTrouble() const {
  return is_scheduler_away_ || IsLate(scheduler_back_at_) ||
         std::ranges::any_of(around_.processes, [&](const auto& process) {
           return process->is_alive() && process->seat().role == Role::kScheduler &&
                  IsUnreachable(process->incarnation());
         });
}

}  // namespace pando::sim
