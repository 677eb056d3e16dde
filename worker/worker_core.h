// WorkerCore is what a worker's protocol core needs to belong to a run: the common base of Session
// and GroupSession. Threads: none. Owns: its member and its Lifecycle.
#pragma once

#include <optional>

#include "plan/job_plan.h"
#include "proto/protocol_core.h"
#include "proto/view_member.h"
#include "worker/lifecycle.h"

namespace pando {

class WorkerCore : public ProtocolCore {
 public:
  // This process was asked to leave. It repeats Leave until the scheduler stops it, and continues
  // to work meanwhile.
  void Leave(Micros now) { lifecycle_.Leave(now); }

  bool finished() const { return lifecycle_.finished(); }
  // How the run ended, or why it cannot go on.
  const Lifecycle& lifecycle() const { return lifecycle_; }
  // The current scheduler and view, for heartbeats.
  const PeerId& scheduler() const { return member_.scheduler(); }
  const View& view() const { return member_.view(); }
  // Returns the view that the core will enter with this message, if there is one. Its members are
  // dialed first.
  std::optional<SharedView> NextView(const Envelope& envelope) const {
    const std::optional<SharedView> view = member_.NextView(envelope);
    return view && Fits(**view) ? view : std::nullopt;
  }

 protected:
  // `plan`, `compute` and `outbox` outlive the core. `ready`: repeated until a view has us.
  WorkerCore(const ViewMember::Identity& identity, const Ready& ready, const JobPlan& plan,
             ComputePort& compute, Outbox& outbox)
      : plan_(plan),
        compute_(compute),
        member_(identity, outbox),
        lifecycle_(ready, compute, member_) {}

  // Handles a message with a view. Returns whether the core has entered another one.
  bool EntersView(Micros now, const Envelope& envelope) {
    const std::optional<SharedView> brought = member_.BroughtBy(envelope.message);
    return !(brought && !Fits(**brought)) && member_.OnView(now, envelope, brought);
  }
  // Returns whether it is a view of this job's shards and micro-batches.
  bool Fits(const View& view) const {
    return view.shards.size() == plan_.shards.shard_count() &&
           view.owners.size() == plan_.job.micro_batches;
  }

  const JobPlan& plan_;
  ComputePort& compute_;
  ViewMember member_;
  Lifecycle lifecycle_;
};

}  // namespace pando
