// The event loop connects a protocol core to its environment: messages, clock ticks, and events of
// other threads of the process. Each core has one loop, on the thread that calls RunLoop.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "net/stop_flag.h"
#include "net/transport.h"
#include "proto/protocol_core.h"

namespace pando {

// Another event source of the loop's thread, such as a mailbox or a signal.
struct LocalEvents {
  int fd = -1;  // wakes the loop while readable
  // Called once per turn, readable or not. Takes the available events and never blocks.
  std::function<void(Micros now)> handle;
  Micros wake_interval = kNever;  // a turn comes at least this often, even if the core waits longer
};

struct LoopOptions {
  const StopFlag* stop = nullptr;
  std::vector<LocalEvents> local;
  // Returns the view that the core will enter with this message (NextView of lane and session).
  // Other views must not change the sockets: a stranger's view could close every connection.
  std::function<std::optional<SharedView>(const Envelope& envelope)> next_view;
  // Gets each such view before the core does, and dials the nodes that it names (DialView), because
  // the core may send to them at once. A view with a lane that cannot be dialed reaches neither of
  // them. REQUIRES: `next_view` is set.
  std::function<void(const View& view)> on_view;
  // Called after each turn; true ends the loop.
  std::function<bool()> is_finished;
  // A turn that has handled all messages lasts at least this long, unless the next one is due. So
  // one turn handles many messages. Null: no pause.
  std::function<Micros()> turn_min;
};

// The most messages of one turn (messages, local events, Tick, wait), so that Tick is not
// late.
inline constexpr int kMessagesPerTurnMax = 256;

enum class LoopEnd { kFinished, kStopped };
// Runs the core until options.is_finished returns true or options.stop is requested. The core's
// outbox sends through `transport`.
LoopEnd RunLoop(ProtocolCore& core, Transport& transport, const LoopOptions& options);

// Dials the peers to which `self`, a worker or a server's lane, sends. Closes the connections to
// peers that the view no longer names, except the scheduler's. A worker dials every lane that holds
// a shard. A lane dials the in-sync and syncing backups of the shards whose primary it is (P19),
// and with `PrimariesTalk` the lanes of the other primaries (P16). `others` (the host's relay, P6a)
// keep their connections. An error names a peer that cannot be dialed; the others are dialed.
enum class PrimariesTalk : uint8_t { kNo, kYes };
Status DialView(Transport& transport, Role role, const PeerId& self, const View& view,
                PrimariesTalk primaries_talk = PrimariesTalk::kNo,
                const std::set<PeerId>& others = {});

}  // namespace pando
