// PushSender: sends gradients, when P4 lets them go and the lanes' windows (P6) have room: to the
// shards' lanes, or to the host's relay (P6a). Used by the session. Threads: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "worker/helping.h"
#include "worker/host_sums.h"
#include "worker/push_window.h"

namespace pando {

class PushSender : SessionPart {
 public:
  // Small shards wait for company before they are sent, so that a lane gets few messages (P6): for
  // the lane's other shards, or for this many bytes. Fewer bytes are not worth waking the protocol
  // thread for: on two cores a step of the MNIST CNN (87 KB) takes 2 % less time with one message
  // than with two.
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
  // `window_bytes`: of a lane.
  PushSender(const SessionPart& part, const Parts& parts, size_t window_bytes);

  void EnterView(const View& view);
  // Sends what may go.
  void Tick(Micros now);
  Micros NextDeadline() const {
    return std::min(window_.NextDeadline(), parts_.relay.NextDeadline());
  }

  const Bytes& bytes() const { return bytes_; }

 private:
  struct Parcel {  // what a flush has for a lane, or the host's relay, of a step
    std::vector<PushItem> items;
    size_t bytes = 0;
    std::set<ShardId> shards;
    std::vector<std::pair<ShardId, size_t>> gradients;  // in UnrepliedGradients: their indices
  };
  using Parcels = std::map<std::pair<PeerId, Step>, Parcel>;

  bool IsBarrierOpen(Step step) const;
  bool IsAllHere(ShardId shard, Step step) const;
  Micros Patience(int64_t divisor) const;
  Parcels Gather(Micros now);
  bool GatherShard(Micros now, ShardId shard, Parcels* parcels);
  bool IsWorthSending(const PeerId& receiver, Step step, const Parcel& parcel) const;
  void Send(Micros now, const PeerId& receiver, Step step, Parcel parcel);

  const Parts parts_;
  PushWindow window_;
  std::map<PeerId, size_t> shard_counts_;  // of each lane, in the view, and what the relay sums
  Bytes bytes_;
};

}  // namespace pando
