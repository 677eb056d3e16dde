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
    return member_.NextView(envelope);
  }

 protected:
  // `plan`, `compute` and `outbox` outlive the core. `ready`: repeated until a view has us.
  WorkerCore(const ViewMember::Identity& identity, const Ready& ready, const JobPlan& plan,
             ComputePort& compute, Outbox& outbox)
      : plan_(plan),
        compute_(compute),
        member_(identity, outbox,
                [&plan](const View& view) {
                  return view.shards.size() == plan.shards.shard_count() &&
                         view.owners.size() == plan.job.micro_batches;
                }),
        lifecycle_(ready, compute, member_) {}

  const JobPlan& plan_;
  ComputePort& compute_;
  ViewMember member_;
  Lifecycle lifecycle_;
};

}  // namespace pando
