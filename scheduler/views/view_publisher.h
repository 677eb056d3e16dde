// ViewPublisher publishes the views that ViewMaker makes, and repeats each until every lane and
// worker has acknowledged it.
#pragma once

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
  void RepeatTo(const PeerId& lane);
  void Forget(const Member& member) { acked_.Forget(member.peer.incarnation); }

  // Returns why the run does not continue, such as "no worker"; empty if it continues.
  std::string WaitingText() const;

 private:
  bool HaveAllAcked() const;

  ViewSeal* const seal_;
  FaultLedger& faults_;
  const RunMembers& membership_;
  LaneAcks<ViewId> acked_;
};

}  // namespace pando
