// ViewPublisher publishes the views that ViewMaker makes, and repeats each until every lane and
// worker has acknowledged it. A member that has one of the last views gets the difference (P17a).
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "scheduler/members/lane_acks.h"
#include "scheduler/members/run_members.h"

namespace pando {

class ViewPublisher : SchedulerPart {
 public:
  // `seal` is null if the run has no keys.
  ViewPublisher(ViewSeal* seal, const SchedulerPart& part, FaultLedger& faults,
                const RunMembers& membership)
      : SchedulerPart(part), seal_(seal), faults_(faults), membership_(membership) {}

  void Publish(Micros now, View next);
  // Returns whether the view differs from the last one, or is this life's first.
  bool IsNews(const View& next) const;
  void OnViewAck(Micros now, const Envelope& envelope, const ViewAck& ack);
  // Returns whether it is time to repeat the view to those that have not acknowledged it.
  bool TakeRepeat(Micros now);
  void RepeatTo(const PeerId& lane);
  void SendWhole(const PeerId& lane);
  void Forget(const Member& member) {
    acked_.Forget(member.peer.incarnation);
    sent_.Forget(member.peer.incarnation);
  }

  // Returns why the run does not continue, such as "no worker"; empty if it continues.
  std::string WaitingText() const;

 private:
  bool HaveAllAcked() const;
  const std::optional<SharedChange>& ChangeSince(ViewId base);

  ViewSeal* const seal_;
  FaultLedger& faults_;
  const RunMembers& membership_;
  LaneAcks<ViewId> acked_;
  LaneAcks<ViewId> sent_;
  std::deque<SharedView> history_;                         // this life's last views
  std::map<ViewId, std::optional<SharedChange>> changes_;  // since these, to the newest one
  Micros repeat_at_{0};
  Micros repeat_interval_{0};
};

}  // namespace pando
