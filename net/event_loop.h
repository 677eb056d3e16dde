// The event loop joins a protocol core to the world: messages in, clock ticks, what other threads
// of the process say. One loop per core, on the thread that calls RunLoop.
#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <vector>

#include "common/event_fd.h"
#include "net/transport.h"
#include "proto/core.h"

namespace pando {

// Asks a loop on another thread to return.
class StopFlag {
 public:
  void Request() {  // any thread, and signal handlers
    is_requested_ = true;
    event_.Raise();
  }
  bool is_requested() const { return is_requested_; }
  int fd() const { return event_.fd(); }  // readable once requested

 private:
  std::atomic<bool> is_requested_ = false;
  EventFd event_;
};

class TransportOutbox : public Outbox {
 public:
  explicit TransportOutbox(Transport& transport) : transport_(transport) {}  // outlives the outbox
  void Send(Envelope envelope) override { transport_.Send(envelope); }

 private:
  Transport& transport_;
};

// Something else the loop's thread attends to: a mailbox, a signal.
struct LocalEvents {
  int fd = -1;  // wakes the loop while readable
  // Called once per turn, readable or not; takes what there is and never blocks.
  std::function<void(Micros now)> handle;
  Micros wake_interval = kNever;  // a turn comes at least this often, whatever the core waits for
};

struct LoopOptions {
  const StopFlag* stop = nullptr;
  std::vector<LocalEvents> local;
  // Whether the core will enter the view that this message brings (WillEnter of lane and session).
  // What anybody else says of views must not move the sockets: a stranger's would hang up on all.
  std::function<bool(const Envelope& envelope)> enters;
  // Sees each such view before the core does, to dial those it names (DialView), whom the core may
  // speak to at once.  REQUIRES: `enters` is there.
  std::function<void(const View& view)> on_view;
  // Asked after each turn; true ends the loop.
  std::function<bool()> is_finished;
};

// A turn: messages, local events, Tick, wait. Messages per turn are bounded so that Tick is not
// late.
inline constexpr int kMessagesPerTurnMax = 256;

enum class LoopEnd { kFinished, kStopped };
// Runs the core until options.is_finished or options.stop says so. `core`'s outbox sends through
// `transport`.
LoopEnd RunLoop(ProtocolCore& core, Transport& transport, const LoopOptions& options);

// Dials what `self` sends to, a worker or a server's lane, and hangs up on what the view does not
// name any more; the scheduler's line is left as it is. A worker dials every lane that holds a
// shard; a lane those that are in-sync or syncing backups of the shards whose primary it is (P19),
// and, where the primaries' lanes tell each other values (P16), these too. `others` are left as
// they are: the host's relay (P6a). An error says who cannot be dialed; the others have been.
enum class PrimariesTalk : uint8_t { kNo, kYes };
Status DialView(Transport& transport, Role role, const PeerId& self, const View& view,
                PrimariesTalk primaries_talk = PrimariesTalk::kNo,
                const std::set<PeerId>& others = {});

}  // namespace pando
