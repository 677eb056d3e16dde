// PartsFixture builds the parts of the scheduler that the others stand on, without the dispatcher,
// so that one part can be tested alone.
#pragma once

#include <utility>
#include <vector>

#include "scheduler/evaluations.h"
#include "scheduler/failures.h"
#include "scheduler/snapshots.h"
#include "scheduler/verification.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace pando {

class PartsFixture : public JournaledState, public MembershipObserver {
 public:
  explicit PartsFixture(JobPlan plan_in = MakePlan(2, 2))
      : plan(std::move(plan_in)),
        run({.self = self, .job = kJob, .job_toml = "toml", .snapshot_dir = "/snapshots"}, plan,
            journal, recorder, recorder, *this, *this),
        silences(run),
        evaluations(run),
        snapshots(run, {.snapshot_dir = "/snapshots"}),
        ownership(run, evaluations, std::nullopt),
        verification(run, std::nullopt, {evaluations, snapshots, ownership}) {
    run.membership.Begin(now);
    run.phase.StartClock(now);
  }

  // A member that takes part; servers have incarnations from 10, workers from 20.
  PeerId Add(uint64_t who, Role role, const std::string& host = "h") {
    Register registration{
        .role = role, .host = host, .process_id = static_cast<uint32_t>(100 + who)};
    if (role == Role::kServer) registration.lane_endpoints = {"tcp://10.0.0.1:1"};
    run.membership.OnRegister(now, {kUnknownNode, Incarnation(who), 0}, registration);
    const PeerId peer = run.members().Find(Incarnation(who))->peer;
    run.membership.OnReady(now, peer, {.data_fingerprint = plan.data.fingerprint});
    return peer;
  }
  // The job's members, and a view that gives all shards to server 10 and all work to worker 20.
  void StartTraining() {
    server = Add(10, Role::kServer);
    Add(11, Role::kServer);
    worker = Add(20, Role::kWorker);
    Add(21, Role::kWorker);
    run.phase.StartTraining(now);
    PublishView();
  }
  void PublishView() {
    View view{.id = run.views.NextId(), .generation = run.view().generation};
    view.nodes = run.members().NodeInfos();
    view.shards.assign(plan.shards.shard_count(), ShardPlacement{.primary = server});
    view.owners.assign(plan.job.micro_batches, MicroBatchOwner{.worker = worker.node});
    run.views.Publish(std::move(view));
    ownership.OnView();
    run.progress.OnView();
    evaluations.OnView();
  }
  // The server's lane reports this version under the view.
  bool Commit(uint64_t version) {
    return run.progress.OnProgress(now,
                                   {.view = run.view().id, .sender = server, .message = Progress{}},
                                   Progress{Version(version), {}});
  }
  // Returns the messages sent to this process since the last call.
  template <class M>
  std::vector<M> SentTo(const PeerId& to) {
    run.outbox.Flush(now);
    std::vector<M> messages;
    for (; sent_count < recorder.sent.size(); ++sent_count) {
      const Envelope& envelope = recorder.sent[sent_count];
      if (envelope.receiver == to && std::holds_alternative<M>(envelope.message))
        messages.push_back(std::get<M>(envelope.message));
    }
    return messages;
  }

  SchedulerState State() const override {
    return {.job = kJob, .term = run.views.term(), .view = run.view()};
  }
  void OnJournaled() override { ++journaled_count; }
  void OnWelcome(Micros at, const Member& member) override { silences.OnWelcome(at, member); }
  void OnForget(const Member& member) override {
    forgotten.push_back(member.Name());
    silences.Forget(member.peer.node);
    evaluations.Forget(member);
  }

  static constexpr JobId kJob{9};
  JobPlan plan;
  Micros now{1'000'000};
  PeerId self{kSchedulerNode, Incarnation(1), 0};
  PeerId server;
  PeerId worker;
  Recorder recorder;
  TestJournal journal;
  int journaled_count = 0;
  size_t sent_count = 0;
  std::vector<std::string> forgotten;

  RunFacts run;
  Silences silences;
  EvaluationRounds evaluations;
  Snapshots snapshots;
  Ownership ownership;
  GradientComparison verification;
};

}  // namespace pando
