#include "net/event_loop.h"

#include <algorithm>
#include <thread>

#include <fmt/core.h>

#include "common/clock.h"
#include "common/endpoint.h"

namespace pando {
namespace {

// Returns when the next turn is due even if no event comes.
Micros NextTurn(const ProtocolCore& core, const LoopOptions& options) {
  Micros next = core.NextDeadline();
  for (const LocalEvents& source : options.local) {
    if (source.wake_interval != kNever) next = std::min(next, SteadyNow() + source.wake_interval);
  }
  return next;
}

// Returns the lanes to which `self` sends (DialView). A backup may be the next view's primary.
std::set<PeerId> FindWanted(Role role, const PeerId& self, const View& view,
                            PrimariesTalk primaries_talk) {
  std::set<PeerId> wanted, primaries;
  for (const ShardPlacement& shard : view.shards) {
    if (shard.primary.node != kUnknownNode) primaries.insert(shard.primary);
    if (role != Role::kWorker && shard.primary != self) continue;
    wanted.insert(shard.in_sync_backups.begin(), shard.in_sync_backups.end());
    for (const SyncingBackup& syncing : shard.syncing_backups) wanted.insert(syncing.peer);
  }
  const bool is_talker = primaries_talk == PrimariesTalk::kYes && primaries.erase(self) != 0;
  if (role == Role::kWorker || is_talker) wanted.merge(primaries);
  return wanted;
}

Result<const NodeInfo*> FindLane(const View& view, const PeerId& lane) {
  for (const NodeInfo& node : view.nodes) {
    const bool is_there = node.node == lane.node && node.incarnation == lane.incarnation &&
                          lane.lane < node.lane_endpoints.size();
    if (is_there) return &node;
  }
  return InvalidArgument(fmt::format("the view names lane {} of node {} without its endpoint",
                                     lane.lane, lane.node.value()));
}

Status DialLane(Transport& transport, const PeerId& lane, const View& view) {
  PANDO_ASSIGN_OR_RETURN(const NodeInfo* node, FindLane(view, lane));
  return transport.Dial(lane, node->lane_endpoints[lane.lane], node->public_key);
}

// Checks that each lane that has a shard can be dialed.
Status CheckLanes(const View& view) {
  for (const PeerId& lane : FindWanted(Role::kWorker, {}, view, PrimariesTalk::kNo)) {
    PANDO_ASSIGN_OR_RETURN(const NodeInfo* node, FindLane(view, lane));
    PANDO_RETURN_IF_ERROR(ParsePeerEndpoint(node->lane_endpoints[lane.lane]).status());
  }
  return Status();
}

void HandleMessages(Micros now, ProtocolCore& core, Transport& transport,
                    const LoopOptions& options) {
  for (int i = 0; i < kMessagesPerTurnMax; ++i) {
    Envelope envelope;
    if (!transport.Receive(&envelope)) return;
    const std::optional<SharedView> next =
        options.on_view ? options.next_view(envelope) : std::nullopt;
    if (next) {
      if (const Status sound = CheckLanes(**next); !sound.ok()) {
        transport.OnBadView(envelope.sender, sound.message());
        continue;
      }
      options.on_view(**next);
    }
    core.OnMessage(now, envelope);
  }
}

}  // namespace

LoopEnd RunLoop(ProtocolCore& core, Transport& transport, const LoopOptions& options) {
  std::vector<int> fds;
  if (options.stop != nullptr) fds.push_back(options.stop->fd());
  for (const LocalEvents& source : options.local) fds.push_back(source.fd);
  while (true) {
    if (options.stop != nullptr && options.stop->is_requested()) return LoopEnd::kStopped;
    const Micros begun = SteadyNow();
    HandleMessages(begun, core, transport, options);
    for (const LocalEvents& source : options.local) source.handle(SteadyNow());
    core.Tick(SteadyNow());
    if (options.is_finished && options.is_finished()) return LoopEnd::kFinished;
    const Micros next = NextTurn(core, options);
    if (options.turn_min && !transport.HasMessage())
      std::this_thread::sleep_for(std::min(begun + options.turn_min(), next) - SteadyNow());
    transport.Wait(next, fds);
  }
}

Status DialView(Transport& transport, Role role, const PeerId& self, const View& view,
                PrimariesTalk primaries_talk, const std::set<PeerId>& others) {
  for (const NodeInfo& node : view.nodes)
    transport.guard().Trust(node.incarnation, node.public_key);
  const std::set<PeerId> wanted = FindWanted(role, self, view, primaries_talk);
  Status first_error;
  for (const PeerId& peer : wanted) {
    Status s = DialLane(transport, peer, view);
    if (!s.ok() && first_error.ok()) first_error = std::move(s);
  }
  for (const PeerId& peer : transport.dialed()) {
    const bool stays =
        peer.node == kSchedulerNode || wanted.contains(peer) || others.contains(peer);
    if (!stays) transport.HangUp(peer);
  }
  return first_error;
}

}  // namespace pando
