// PartsFixture has the parts of the scheduler without the dispatcher, so that each can be tested
// alone.
#pragma once

#include <utility>
#include <vector>

#include "tests/scheduler/scheduler_fixture.h"

namespace pando {

class PartsFixture : public JournaledState, public MembershipObserver {
 public:
  explicit PartsFixture(JobPlan plan_in = MakePlan(2, 2))
      : plan(std::move(plan_in)),
        parts{{.self = self, .job = kJob, .job_toml = "toml", .snapshot_dir = "/snapshots"},
              plan,
              journal,
              recorder,
              recorder,
              *this,
              *this} {
    parts.membership.Begin(now);
  }

  // A member that takes part; servers have incarnations from 10, workers from 20.
  PeerId Add(uint64_t who, Role role, const std::string& host = "h") {
    Register registration{
        .role = role, .host = host, .process_id = static_cast<uint32_t>(100 + who)};
    if (role == Role::kServer) registration.lane_endpoints = {"tcp://10.0.0.1:1"};
    const PeerId from{kUnknownNode, Incarnation(who), 0};
    if (const Member* added = parts.membership.OnRegister(now, from, registration))
      parts.silences.OnWelcome(now, *added);
    const PeerId peer = parts.members.Find(Incarnation(who))->peer;
    parts.membership.OnReady(now, peer, {.data_fingerprint = plan.data.fingerprint});
    return peer;
  }
  // The job's members, and a view that gives all shards to server 10 and all work to worker 20.
  void StartTraining() {
    server = Add(10, Role::kServer);
    Add(11, Role::kServer);
    worker = Add(20, Role::kWorker);
    Add(21, Role::kWorker);
    parts.phase.StartTraining(now);
    PublishView();
  }
  void PublishView() {
    View view{.id = parts.views.NextId(), .generation = parts.views.view().generation};
    view.nodes = parts.members.NodeInfos(SumUse::kOff, {});
    view.shards.assign(plan.shards.shard_count(), ShardPlacement{.primary = server});
    view.owners.assign(plan.job.micro_batches, MicroBatchOwner{.worker = worker.node});
    parts.views.Publish(std::move(view));
    parts.ownership.OnView();
    parts.progress.OnView();
    parts.evaluations.OnView();
  }
  // The server's lane reports this version under the view.
  bool Commit(uint64_t version) {
    return parts.progress.OnProgress(
        now, {.view = parts.views.view().id, .sender = server, .message = Progress{}},
        Progress{Version(version), {}});
  }
  // Returns the messages sent to this process since the last call.
  template <class M>
  std::vector<M> SentTo(const PeerId& to) {
    parts.outbox.Flush();
    std::vector<M> messages;
    for (; sent_count < recorder.sent.size(); ++sent_count) {
      const Envelope& envelope = recorder.sent[sent_count];
      if (envelope.receiver == to && std::holds_alternative<M>(envelope.message))
        messages.push_back(std::get<M>(envelope.message));
    }
    return messages;
  }

  SchedulerState State() const override {
    return {.job = kJob, .term = parts.views.term(), .view = parts.views.view()};
  }
  void OnJournaled() override { ++journaled_count; }
  void OnForget(const Member& member) override {
    forgotten.push_back(member.Name());
    parts.silences.Forget(member.peer.node);
    parts.evaluations.Forget(member);
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

  SchedulerParts parts;
};

}  // namespace pando
