// StandInScheduler does the least that servers and workers need from a scheduler: it welcomes them,
// publishes one view when all have joined, and hands out scalars. No process dies in a measurement.
// Threads: only its loop's.
#pragma once

#include <map>

#include "bench/cpp/push_pull/load.h"
#include "proto/protocol_core.h"

namespace pando::bench {

class StandInScheduler : public ProtocolCore {
 public:
  // `plan` and `outbox` outlive the scheduler.
  StandInScheduler(const Load& load, const JobPlan& plan, PeerId self, Outbox& outbox)
      : load_(load), plan_(plan), self_(self), outbox_(outbox) {}

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override { return view_at_; }

 private:
  struct Member {
    NodeInfo info;
    PeerId peer;
    bool is_ready = false;
    bool has_view = false;
  };
  void OnRegister(const PeerId& from, const Register& registration);
  void OnReady(Incarnation from);
  void MakeView();
  void OnScalarsRequest(const PeerId& from, Step first);
  void Send(const PeerId& to, Message message);

  const Load load_;
  const JobPlan& plan_;
  const PeerId self_;
  Outbox& outbox_;
  std::map<Incarnation, Member> members_;
  View view_;  // number 0 until all are ready
  Micros view_at_ = kNever;
};

}  // namespace pando::bench
