// PushSender sends gradients once the barrier (P4) is open and the window (P6) has room: to the
// shards' lanes, or to relays (P6a). It sends them in groups (PushGroups). A tick costs
// time for the shards whose gradients have changed, are sent, or wait for others of the group, not
// for all shards. Threads: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "worker/push_groups.h"
#include "worker/push_window.h"
#include "worker/step_clock.h"
#include "worker/steps.h"
#include "worker/sum_giver.h"
#include "worker/sum_relay.h"

namespace pando {

class PushSender : SessionPart {
 public:
  struct Parts {  // all outlive it
    const Steps& steps;
    const StepClock& clock;
    SumGiver& giver;
    SumRelay& relay;
    LaneRequests& requests;
    Lanes& lanes;
  };
  struct Bytes {
    uint64_t early = 0;  // pushed while the step's backward was still going on: the overlap
    uint64_t pushed = 0;
    uint64_t given = 0;  // to relays, which push them with their own (P6a)
  };
  // `window_bytes`: the window's room, in place of PushWindow's rule. Groups close at no more.
  PushSender(const SessionPart& part, const Parts& parts, std::optional<size_t> window_bytes);

  void EnterView() {
    has_cut_ = false;
    window_.Reset();
  }
  // Sends the gradients that may go.
  void Tick(Micros now);
  Micros NextDeadline() const { return std::min(look_again_at_, window_.NextDeadline()); }

  const Bytes& bytes() const { return bytes_; }

 private:
  struct Parcel {  // gradients for one receiver
    std::vector<PushItem> items;
    size_t bytes = 0;
    std::vector<std::pair<ShardId, size_t>> gradients;  // in UnrepliedGradients: their indices
  };

  Step step() const { return known_.step; }
  void CutGroups();
  void FollowSteps();
  void StartStep(Step step, bool is_cut);
  PushWindow::Look LookAtStep(Micros now);
  bool IsAllHere(ShardId shard) const;
  std::vector<size_t> ChooseGroups(Micros now);
  void Gather(Micros now, const PushGroups::Group& group, Parcel* parcel);
  Micros LeavesAt(Micros now, ShardId shard, const UnrepliedGradient& gradient);
  void Send(Micros now, const PushGroups::Receiver& receiver, Parcel parcel);

  const Parts parts_;
  PushGroups groups_;
  PushWindow window_;
  // Whether groups have been made in this view, and for which of the giver's choices of relays.
  bool has_cut_ = false;
  uint64_t giver_changes_ = 0;
  struct Known {
    Step step;                 // whose gradients are sent now
    bool has_work = false;     // of this worker
    bool is_computed = false;  // the work has been computed once, so that no group waits for more
    bool operator==(const Known&) const = default;
  };
  Known known_;
  // The first and the last of the step's shards that lack its version. The metrics' shard is left
  // out, because a program gives it last of all.
  ShardId front_;
  ShardId back_;
  Micros look_again_at_ = kNever;  // when a relay's sum may leave
  Bytes bytes_;
};

}  // namespace pando
