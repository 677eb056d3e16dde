// PushSender sends gradients once the barrier (P4) is open and the lanes' windows (P6) have room:
// to the shards' lanes, or to the host's relay (P6a). Used by the session. Threads: none.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "worker/host_giver.h"
#include "worker/host_relay.h"
#include "worker/step_clock.h"
#include "worker/steps.h"

namespace pando {

// PushWindow bounds how far a worker's gradients may run ahead of the commits that they are part
// of. Each lane has one. P6 says where it begins, and when the lane is sent the whole step. Without
// a window the fastest worker sends all its gradients first, and meanwhile the shards lack the
// other workers': nothing is committed, the servers' links carry nothing out, and the last replies
// begin when the last gradients are in. Over 1 Gbit/s a step of VGG-16 with 4 workers and 4 servers
// takes 5.6 s, and took 6.0 s without windows. The order after backward is that of Jayarajan et
// al., Priority-based Parameter Propagation, MLSys 2019, arXiv:1905.03960.
struct PushWindow {
  // The size is an eighth of the lane's gradients, within these bounds: bytes that are under way
  // when backward ends delay the shards that the next forward reads first.
  static constexpr size_t kBytesMin = size_t{4} << 20;
  static constexpr size_t kBytesMax = size_t{16} << 20;
  static constexpr size_t kShareOfLane = 8;
  static constexpr Micros kPatienceMax = std::chrono::seconds(1);

  size_t lane_bytes = 0;             // of the lane's gradients
  Version lacking;                   // in the last look
  std::array<ShardId, 2> begins_at;  // in the last look: from the front, from the back
  Micros open_at = kNever;           // when patience ends; kNever: nothing is held up
  Version open_to;                   // the whole step that makes this version may be sent
};

// PushLook is what one look at all shards sees, and which of them it chooses.
struct PushLook {
  struct Shard {
    size_t window = 0;            // the index of its lane's
    size_t bytes = 0;             // of its gradient
    bool is_given = false;        // to the relay, which has no window
    bool has_ready = false;       // gradients that may be sent if the window has room
    bool is_lacking = false;      // it does not have the version `lacking`
    bool is_awaiting_us = false;  // it lacks gradients of this worker
  };
  size_t window_bytes_max = PushWindow::kBytesMax;  // SIZE_MAX: windows without end
  Micros now{0};
  Micros patience{0};  // how long a window may stay where it is
  Version lacking;
  bool is_computed = false;  // this worker has computed its part of the step
  std::vector<Shard> shards;
  std::vector<PushWindow> windows;  // as the last look left them
  std::vector<ShardId> chosen;      // the result: their gradients are sent, in this order
};
// Sets `chosen`, and leaves the windows for the next look. A pure function of the look.
PushLook ChooseShards(PushLook look);

class PushSender : SessionPart {
 public:
  // So that a lane gets few messages (P6), small shards wait for the lane's other shards, or for
  // this many bytes. Fewer bytes are not worth waking the protocol thread for: on two cores a step
  // of the MNIST CNN (87 KB) takes 2 % less time with one message than with two.
  static constexpr size_t kFlushBytes = 128 << 10;

  struct Parts {  // all outlive it
    const Steps& steps;
    const StepClock& clock;
    HostGiver& giver;
    HostRelay& relay;
    LaneRequests& requests;
    Lanes& lanes;
  };
  struct Bytes {
    uint64_t early = 0;  // pushed while the step's backward was still going on: the overlap
    uint64_t pushed = 0;
    uint64_t given = 0;  // to the host's relay, which pushes them with its own (P6a)
  };
  // `window_bytes`: the most bytes of a lane's window.
  PushSender(const SessionPart& part, const Parts& parts, size_t window_bytes);

  void EnterView(const View& view);
  // Sends the gradients that may go.
  void Tick(Micros now);
  Micros NextDeadline() const;

  const Bytes& bytes() const { return bytes_; }

 private:
  struct Parcel {  // one step's gradients for a lane or for the host's relay
    std::vector<PushItem> items;
    size_t bytes = 0;
    std::set<ShardId> shards;
    std::vector<std::pair<ShardId, size_t>> gradients;  // in UnrepliedGradients: their indices
  };
  using Parcels = std::map<std::pair<PeerId, Step>, Parcel>;

  void LookAtShards(Micros now);
  bool MayGo(Micros now, ShardId shard, const UnrepliedGradient& gradient);
  bool IsAllHere(ShardId shard, Step step) const;
  Micros Patience(int64_t divisor) const;
  Parcels Gather(Micros now);
  bool IsWorthSending(const PeerId& receiver, Step step, const Parcel& parcel) const;
  void Send(Micros now, const PeerId& receiver, Step step, Parcel parcel);

  const Parts parts_;
  PushLook look_;                          // the last look at the shards of the view
  Micros look_again_at_ = kNever;          // when a relay's sum may leave
  std::map<PeerId, size_t> shard_counts_;  // the shards of each lane of the view, and of the relay
  Bytes bytes_;
};

}  // namespace pando
