#include "net/event_loop.h"

#include <algorithm>
#include <set>

#include "net/clock.h"

namespace pando {
namespace {

void HandleMessages(ProtocolCore& core, Transport& transport, const LoopOptions& options,
                    ViewId* newest_view) {
  const Micros now = SteadyNow();
  for (int i = 0; i < kMessagesPerTurnMax; ++i) {
    Envelope envelope;
    if (!transport.Receive(&envelope)) return;
    const auto* update = std::get_if<ViewUpdate>(&envelope.message);
    if (update != nullptr && options.on_view && update->view.id > *newest_view) {
      *newest_view = update->view.id;
      options.on_view(update->view);
    }
    core.OnMessage(now, envelope);
  }
}

// When the next turn is due even if nothing happens.
Micros NextTurn(const ProtocolCore& core, const LoopOptions& options) {
  Micros next = core.NextDeadline();
  for (const LocalEvents& source : options.local) {
    if (source.wake_interval != kNever) next = std::min(next, SteadyNow() + source.wake_interval);
  }
  return next;
}

}  // namespace

LoopEnd RunLoop(ProtocolCore& core, Transport& transport, const LoopOptions& options) {
  std::vector<int> fds;
  if (options.stop != nullptr) fds.push_back(options.stop->fd());
  for (const LocalEvents& source : options.local) fds.push_back(source.fd);
  ViewId newest_view;
  while (true) {
    if (options.stop != nullptr && options.stop->is_requested()) return LoopEnd::kStopped;
    HandleMessages(core, transport, options, &newest_view);
    for (const LocalEvents& source : options.local) source.handle(SteadyNow());
    core.Tick(SteadyNow());
    if (options.is_finished && options.is_finished()) return LoopEnd::kFinished;
    transport.Wait(NextTurn(core, options), fds);
  }
}

Status DialView(Transport& transport, Role self, const View& view) {
  if (self != Role::kWorker) return Status();
  std::set<PeerId> named;
  Status first_error;
  for (const NodeInfo& node : view.nodes) {
    if (node.role != Role::kServer) continue;
    for (size_t lane = 0; lane < node.lane_endpoints.size(); ++lane) {
      const PeerId peer{node.node, node.incarnation, static_cast<uint16_t>(lane)};
      named.insert(peer);
      Status s = transport.Dial(peer, node.lane_endpoints[lane]);
      if (!s.ok() && first_error.ok()) first_error = std::move(s);
    }
  }
  for (const PeerId& peer : transport.dialed()) {
    if (peer.node != kSchedulerNode && !named.contains(peer)) transport.HangUp(peer);
  }
  return first_error;
}

}  // namespace pando
