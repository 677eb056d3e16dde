#include "tests/sim/hostile/view_forger.h"

#include <algorithm>
#include <string>
#include <vector>

namespace pando::sim {
namespace {

constexpr Place kForgersPlace = UINT32_MAX;
constexpr uint32_t kForgersProcessId = 1;  // no other process has it

}  // namespace

void ViewForger::Begin() {
  if (stage_.swarm.hostile_interval != Micros(0) && stage_.swarm.has_keys) SendAndGoOn();
}

void ViewForger::SendAndGoOn() {
  if (stage_.journal.state() && !stage_.journal.state()->view.shards.empty()) {
    if (chance_.OneIn(0.5)) {
      SendView();
    } else {
      Claim();
    }
  }
  stage_.world.After(Micros(1) + chance_.Until(4 * stage_.swarm.hostile_interval),
                     [this] { SendAndGoOn(); });
}

// The view after the newest one, with other contents; its signature is a guess, or that of no view.
View ViewForger::MakeView() {
  View view = stage_.journal.state()->view;
  view.id.number += 1;
  if (chance_.OneIn(0.3)) view.id.term += 1;
  if (chance_.OneIn(0.3)) view.generation += 1;
  if (chance_.OneIn(0.3)) std::ranges::reverse(view.owners);
  if (chance_.OneIn(0.3)) view.nodes.clear();
  if (chance_.OneIn(0.3)) view.restore = {};
  for (ShardPlacement& placement : view.shards) {
    if (chance_.OneIn(0.5)) placement.primary = view.shards.front().primary;
    if (chance_.OneIn(0.3)) placement.in_sync_backups.clear();
  }
  return view;
}

void ViewForger::SendView() {
  std::vector<Process*> members = population_.Living(Role::kServer);
  std::ranges::copy(population_.Living(Role::kWorker), std::back_inserter(members));
  std::erase_if(members, [](const Process* process) { return process->member() == nullptr; });
  if (members.empty()) return;
  const View view = MakeView();
  PeerId to = members[chance_.Below(members.size())]->self();
  to.lane = static_cast<uint16_t>(chance_.Below(2));
  stage_.network.SendForged(kForgersPlace,
                            {.job = kJob,
                             .generation = view.generation,
                             .view = view.id,
                             .sender = members[chance_.Below(members.size())]->self(),
                             .receiver = to,
                             .message = ViewUpdate{view, std::to_string(chance_.Next())}});
}

void ViewForger::Claim() {
  const Process* leader = population_.Leader();
  if (leader == nullptr) return;
  const View view = MakeView();
  const bool is_new = outsider_.incarnation == Incarnation() || chance_.OneIn(0.02);
  if (is_new) outsider_.incarnation = Incarnation(chance_.Next() | 1);
  Message message = Heartbeat{};
  if (chance_.OneIn(0.3)) message = ViewAck{view.id, view.generation};
  if (chance_.OneIn(0.3)) message = ViewUpdate{view, std::to_string(chance_.Next())};
  if (is_new || chance_.OneIn(0.05))
    message = Register{.host = "outside", .process_id = kForgersProcessId};
  stage_.network.SendForged(kForgersPlace, {.job = kJob,
                                            .generation = view.generation,
                                            .view = view.id,
                                            .sender = outsider_,
                                            .receiver = leader->self(),
                                            .message = std::move(message)});
}

}  // namespace pando::sim
