// PushWindow bounds how far a worker's gradients may run ahead of the commits that they are part
// of (P6). PushSender asks it which gradients may be sent. Threads: none.
//
// Without a window the fastest worker sends all its gradients first, and meanwhile the shards lack
// the other workers': nothing is committed, the servers' links carry nothing out, and the last
// replies begin when the last gradients are in. Over 1 Gbit/s a step of VGG-16 with 4 workers and 4
// servers takes 5.6 s, and took 6.0 s without windows. The order after backward is that of
// Jayarajan et al., Priority-based Parameter Propagation, MLSys 2019, arXiv:1905.03960.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"

namespace pando {

class PushWindow {
 public:
  // The window has room for an eighth of the step's gradients, within bounds, because bytes that
  // are under way when backward ends delay the shards that the next forward reads first. It has
  // more where less would leave links idle: for what the worker sends in kRoundTrip, and for
  // kRounds rounds, each of one group for each lane. While one round's parameters come back, the
  // next one's gradients are on their way.
  static constexpr size_t kShareOfStep = 8;
  static constexpr size_t kBytesMax = size_t{16} << 20;
  static constexpr size_t kBytesUnmeasured = size_t{4} << 20;  // before a step has been measured
  static constexpr Micros kRoundTrip = std::chrono::milliseconds(10);
  static constexpr size_t kRounds = 3;
  // After backward: of the room, for the last shards, where computing workers' windows begin.
  static constexpr size_t kShareAtBack = 4;
  static constexpr Micros kPatienceMax = std::chrono::seconds(1);

  // Look is what one look at the step's shards has found.
  struct Look {
    Micros now{0};
    std::optional<Micros> usual = {};  // the usual time of a step
    Version lacking;                   // the version that the gradients help to make
    bool is_computed = false;          // this worker has computed its part of the step
    // The first shard that lacks the version, and the last one that also has gradients of this
    // worker.
    ShardId front;
    ShardId back;
    // Whether the shard where the window begins lacks gradients of this worker.
    bool is_awaiting_us = false;
  };

  // `shard_bytes`: of each shard's gradient. `room`: in place of the rule above; SIZE_MAX is a
  // window without end.
  PushWindow(const std::vector<size_t>& shard_bytes, std::optional<size_t> room);

  // The groups have changed. `bytes`: of one group for each lane.
  void SetRoundBytes(size_t bytes) { round_bytes_ = bytes; }
  void Begin(const Look& look);
  // Between Begin and End: whether gradients of shards from this one on may be sent.
  bool AdmitsFromFront(ShardId first) const {
    return look_.is_computed && (is_open_ || Distance(look_.front, first) < room_);
  }
  // The same for gradients of shards up to this one.
  bool AdmitsFromBack(ShardId last) const {
    const size_t room = look_.is_computed ? room_ / kShareAtBack : room_;
    return is_open_ || last >= look_.back || Distance(last, look_.back) < room;
  }
  // `is_held_up`: gradients were ready and not admitted. If the window then does not move for a
  // quarter of a step, it lets everything through, because it waits for a late worker.
  void End(bool is_held_up);
  // A new view begins: other lanes may be waited for.
  void Reset() {
    look_ = {};
    open_for_ = Version(0);
    open_at_ = kNever;
  }
  // There is nothing to send.
  void Rest() { open_at_ = kNever; }
  // When the window, which does not move, lets everything through.
  Micros NextDeadline() const { return open_at_; }

 private:
  // The gradients' bytes from the beginning of one shard to that of another, 0 if that is before:
  // from the front the first shard counts, from the back the last one does not.
  size_t Distance(ShardId from, ShardId to) const {
    return from >= to ? 0 : begins_[to.value()] - begins_[from.value()];
  }

  size_t RoomByRule() const;

  std::vector<size_t> begins_;  // by shard, in the step's gradients; and their end
  const std::optional<size_t> fixed_room_;
  size_t round_bytes_ = 0;
  Look look_;
  size_t room_ = 0;
  bool is_open_ = false;
  Version open_for_;         // all gradients that help to make this version may be sent
  Micros open_at_ = kNever;  // when patience ends; kNever: nothing is held up
};

}  // namespace pando
