// RunFacts is the state that most parts of the scheduler core use: the newest view, what is sent,
// the phase, faults, results, progress and members. Threads: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/view_seal.h"
#include "scheduler/evaluation.h"
#include "scheduler/journaled_outbox.h"
#include "scheduler/ledgers/fault_ledger.h"
#include "scheduler/ledgers/view_ledger.h"
#include "scheduler/members/membership.h"
#include "scheduler/run_progress.h"
#include "scheduler/view_claims.h"

namespace pando {

struct SchedulerOptions {
  PeerId self;
  JobId job;
  std::string job_toml;
  std::string snapshot_dir;             // sent to every node; empty: the run stores no snapshots
  std::string files_endpoint;           // sent to every node (P45)
  Micros started_at{0};                 // when the job began, on the machine's steady clock
  Step next_row;                        // OnStepMetrics continues from here
  std::optional<SchedulerState> state;  // of the journal, if there is one
  bool is_fresh = false;  // with a state: all nodes are new, and a new generation begins from the
                          // last snapshot (`pando resume`)
  Micros stop_grace = std::chrono::milliseconds(500);
  ViewSeal* seal = nullptr;  // outlives the scheduler; null: the run has no keys
};

struct RunFacts {
  // All references outlive this.
  RunFacts(const SchedulerOptions& options, const JobPlan& plan_in, Journal& journal,
           RunObserver& observer_in, Outbox& outbox_in, JournaledState& state,
           MembershipObserver& members_observer)
      : plan(plan_in),
        observer(observer_in),
        seal(options.seal),
        views(options.state),
        outbox({options.self, options.job}, views.view(), state, journal, observer, outbox_in),
        phase(outbox, options.stop_grace, options.state && options.state->is_finished),
        faults(options.started_at,
               options.state ? options.state->faults : std::vector<FaultRecord>()),
        history(plan,
                options.state ? options.state->evaluations : std::vector<EvaluationSummary>()),
        progress(*this, options.next_row),
        membership(*this, options, members_observer),
        rollback(*this),
        claims(*this, options) {}
  RunFacts(const RunFacts&) = delete;

  const View& view() const { return views.view(); }
  const Members& members() const { return membership.members(); }
  bool IsGroup() const { return plan.job.strategy == Strategy::kAllreduce; }
  // The sender of a message, which is a member.
  const Member& Sender(const PeerId& from) const { return *members().Find(from.incarnation); }

  const JobPlan& plan;
  RunObserver& observer;
  ViewSeal* const seal;  // null: the run has no keys
  ViewLedger views;
  JournaledOutbox outbox;
  RunPhase phase;
  FaultLedger faults;
  EvaluationHistory history;
  RunProgress progress;
  RunMembers membership;
  Rollback rollback;
  ViewClaims claims;
};

}  // namespace pando
