// PushSender: sends gradients, when P4 lets them go and the lanes' windows (P6) have room: to the
// shards' lanes, or to the host's relay (P6a). Used by the session. Threads: none.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "proto/outbox.h"
#include "worker/helping.h"
#include "worker/host_sums.h"

namespace pando {

// PushWindow: how far a worker's gradients may run ahead of the commits that they are part of, lane
// by lane. Without a window the fastest worker sends all its gradients first, and meanwhile the
// shards lack the other workers': nothing is committed, the servers' links carry nothing out, and
// the last replies begin when the last gradients are in. Over 1 Gbit/s a step of VGG-16 with 4
// workers and 4 servers takes 5.6 s, and took 6.0 s without windows.
// While backward runs, a lane's window begins at its last shard that lacks the version, because
// backward finishes the last shards first. Every worker sends what it has of that shard, so no
// worker waits for another's window. When backward is over, the window begins at the first such
// shard, which the next forward reads first (Jayarajan et al., Priority-based Parameter
// Propagation, MLSys 2019, arXiv:1905.03960). The last shard may still be sent then, because
// workers that still compute have their window there. If the windows of a lane do not move for a
// while, the lane waits for a late worker, or for this one: then all of the step may be sent to it.
// Called by PushSender. Threads: none.
class PushWindow {
 public:
  // An eighth of a lane's gradients, within these bounds: gradients that are under way when
  // backward ends are not overtaken any more.
  static constexpr size_t kBytesMin = size_t{4} << 20;
  static constexpr size_t kBytesMax = size_t{16} << 20;
  static constexpr size_t kShareOfLane = 8;
  static constexpr Micros kPatienceMax = std::chrono::seconds(1);
  enum Edge : uint8_t { kFirst, kLast };  // where a look begins

  // `bytes_max`: of a window; SIZE_MAX: without end.  REQUIRES: some bytes.
  explicit PushWindow(size_t bytes_max) : bytes_max_(bytes_max) {}

  // In another view other lanes have the shards: first Clear, then Add for each shard with the
  // bytes of its gradient.
  void Clear() { lanes_.clear(); }
  void Add(const PeerId& lane, size_t bytes) { lanes_[lane].all_bytes += bytes; }

  // One look at all shards: Begin; if all of the step is computed From(kFirst), and from the first
  // shard to the last, for each that lacks the version, Admits, as often as there is something to
  // push, and Pass; From(kLast), and the same from the last to the first; End.
  // `patience`: how long a window may stay where it is.
  void Begin(Micros now, Version lacking, Micros patience) {
    now_ = now;
    patience_ = patience;
    is_computed_ = false;
    const bool is_another_step = std::exchange(lacking_, lacking) != lacking;
    for (auto& [peer, lane] : lanes_) {
      lane.is_held_up = false;
      if (is_another_step) lane.open_at = kNever;
    }
  }
  void From(Edge edge) {
    edge_ = edge;
    if (edge == kFirst) is_computed_ = true;
    for (auto& [peer, lane] : lanes_) {
      lane.passed_bytes = 0;
      lane.is_waiting_for_us = false;
    }
  }
  // Whether the gradients that are here of the shard that comes next may be pushed to this lane.
  bool Admits(const PeerId& peer) {
    Lane& lane = lanes_[peer];
    if (lane.passed_bytes < Room(lane) || lane.is_waiting_for_us || lane.open_to == lacking_)
      return true;
    if (lane.open_at == kNever) lane.open_at = now_ + patience_;
    lane.is_held_up = now_ < lane.open_at;
    if (!lane.is_held_up) lane.open_to = lacking_;
    return !lane.is_held_up;
  }
  // `bytes`: of its gradient. `is_all_here`: all that this worker gives of it; if not, it is this
  // worker that others may be waiting for.
  void Pass(const PeerId& peer, ShardId shard, size_t bytes, bool is_all_here) {
    Lane& lane = lanes_[peer];
    if (lane.passed_bytes == 0) {
      if (lane.begins_at[edge_] != shard)
        lane.open_at = lane.is_held_up ? now_ + patience_ : kNever;
      lane.begins_at[edge_] = shard;
      lane.is_waiting_for_us = !is_all_here;
    }
    lane.passed_bytes += bytes;
  }
  void End() {
    for (auto& [peer, lane] : lanes_) {
      if (!lane.is_held_up) lane.open_at = kNever;
    }
  }
  // In place of a look: there is nothing to push.
  void Rest() {
    for (auto& [peer, lane] : lanes_) lane.open_at = kNever;
  }

  // When to look again at the latest.
  Micros NextDeadline() const {
    Micros deadline = kNever;
    for (const auto& [peer, lane] : lanes_) deadline = std::min(deadline, lane.open_at);
    return deadline;
  }

 private:
  static constexpr size_t kOneShard = 1;  // in bytes: the first shard goes even if it is larger
  struct Lane {
    size_t all_bytes = 0;              // of its gradients
    std::array<ShardId, 2> begins_at;  // the windows, by Edge; of this look, or of the last one
    bool is_waiting_for_us = false;    // the shard where this look began
    size_t passed_bytes = 0;           // in this look from this end
    bool is_held_up = false;           // in this look
    Micros open_at = kNever;           // when patience ends; kNever: nothing is held up
    Version open_to;                   // all of the step that makes this version may go
  };

  // How many bytes may be passed before what comes next is held up.
  size_t Room(const Lane& lane) const {
    if (bytes_max_ == SIZE_MAX) return SIZE_MAX;
    if (is_computed_ && edge_ == kLast) return kOneShard;
    return std::min(bytes_max_, std::clamp(lane.all_bytes / kShareOfLane, kBytesMin, kBytesMax));
  }

  const size_t bytes_max_;
  Edge edge_ = kLast;         // of this look
  bool is_computed_ = false;  // as far as this look knows
  Micros now_{0};
  Micros patience_{0};
  Version lacking_;
  std::map<PeerId, Lane> lanes_;
};

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
