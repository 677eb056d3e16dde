#include "tests/sim/hostile/hostile_peer.h"

#include <algorithm>
#include <iterator>

namespace pando::sim {
namespace {

// A key decides whether a stranger may send it to the scheduler (net/line_guard.h).
bool IsUpToKeys(const MessageRow& row, bool is_to_scheduler) {
  return is_to_scheduler && MayBeStranger(row.sender);
}

}  // namespace

void HostilePeer::Begin() {
  if (stage_.swarm.hostile_interval == Micros(0)) return;
  stage_.coverage.Note(Event::kHostilePeer);
  copies_max_ = chance_.Between(1, 4);
  SendAndGoOn();
}

void HostilePeer::SendAndGoOn() {
  SendOne();
  stage_.world.After(Micros(1) + chance_.Until(2 * stage_.swarm.hostile_interval),
                     [this] { SendAndGoOn(); });
}

void HostilePeer::SendOne() {
  RunKnowledge run{.plan = population_.plan(), .peers = Receivers()};
  if (run.peers.empty()) return;
  if (const auto& state = stage_.journal.state()) {
    run.view = state->view.id;
    run.generation = state->view.generation;
  }
  if (Process* leader = population_.Leader()) run.committed = leader->scheduler()->committed();
  const Identity sender = DrawSender(run.peers);
  const bool is_to_scheduler = chance_.OneIn(0.3);  // which is the first, if it lives
  const PeerId receiver = run.peers[is_to_scheduler ? 0 : chance_.Below(run.peers.size())];
  const size_t kind = DrawKind(sender, receiver.node == kSchedulerNode);
  Envelope envelope{.job = kJob,
                    .generation = RandomGeneration(chance_, run),
                    .view = RandomView(chance_, run),
                    .sender = sender.peer,
                    .receiver = receiver,
                    .message = RandomMessage(chance_, run, kind)};
  if (Decode(Encode(envelope)).ok()) stage_.network.SendForged(kHostilePlace, envelope);
}

// The scheduler, and every lane and worker that has joined or is about to.
std::vector<PeerId> HostilePeer::Receivers() const {
  std::vector<PeerId> receivers;
  for (const Role role : {Role::kScheduler, Role::kServer, Role::kWorker}) {
    for (const Process* process : population_.Living(role)) {
      const size_t lane_count =
          process->member() == nullptr ? 1 : std::max<size_t>(1, process->member()->lanes().size());
      for (size_t lane = 0; lane < lane_count; ++lane) {
        receivers.push_back(process->self());
        receivers.back().lane = static_cast<uint16_t>(lane);
      }
    }
  }
  return receivers;
}

// Never the scheduler: net knows the endpoint that it dialed as the scheduler.
HostilePeer::Identity HostilePeer::DrawSender(const std::vector<PeerId>& peers) {
  if (copies_.size() < copies_max_ && chance_.OneIn(0.05)) CopyMember();
  if (!copies_.empty() && chance_.OneIn(0.6)) return copies_[chance_.Below(copies_.size())];
  const NodeId nodes[] = {kUnknownNode, peers[chance_.Below(peers.size())].node,
                          NodeId(static_cast<uint32_t>(chance_.Between(1, 20)))};
  const NodeId node = nodes[chance_.Below(std::size(nodes))];
  return {.peer = {node == kSchedulerNode ? kUnknownNode : node, Incarnation(chance_.Next() | 1),
                   static_cast<uint16_t>(chance_.Below(2))}};
}

// The copy goes on when the member dies.
void HostilePeer::CopyMember() {
  const Role role = chance_.OneIn(0.5) ? Role::kServer : Role::kWorker;
  const std::vector<Process*> living = population_.Living(role);
  const Process* victim = living.empty() ? nullptr : living[chance_.Below(living.size())];
  if (victim == nullptr || victim->member() == nullptr) return;
  copies_.push_back({victim->self(), role});
}

size_t HostilePeer::DrawKind(const Identity& sender, bool is_to_scheduler) {
  while (true) {
    const size_t kind = chance_.Below(kMessageKindCount);
    const MessageRow& row = kMessageRows[kind];
    const bool is_of_role = sender.role != Role::kClient && MaySend(sender.role, row.sender);
    if (!is_of_role && !IsUpToKeys(row, is_to_scheduler)) return kind;
  }
}

}  // namespace pando::sim
