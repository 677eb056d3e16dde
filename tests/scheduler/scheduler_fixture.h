// Fixture: a scheduler core with a journal in memory, and a test that plays all other processes.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/run_status.h"
#include "scheduler/scheduler.h"

namespace pando {

using std::chrono::milliseconds;

class Recorder : public Outbox, public RunObserver {
 public:
  void Send(Envelope envelope) override { sent.push_back(std::move(envelope)); }
  void OnEvent(Micros, const RunEvent& event) override { events.push_back(event); }
  void OnStepMetrics(Micros, const StepMetrics& row) override { rows.push_back(row.step); }
  void OnEvaluation(Micros, const EvaluationSummary& e) override { evaluations.push_back(e); }
  void OnEvaluationsDropped(Micros, Version last_good) override {
    std::erase_if(evaluations, [&](const EvaluationSummary& e) { return e.version > last_good; });
  }
  void OnFault(Micros, const FaultRecord& fault) override { faults.push_back(fault); }
  std::optional<SnapshotCheck> OnSnapshotRipe(Micros, const SnapshotManifest&) override {
    if (is_reading) return std::nullopt;
    return SnapshotCheck{disk, bad_shard};
  }
  void OnSnapshot(Micros, const SnapshotManifest& m) override { snapshots.push_back(m.snapshot); }
  void OnSnapshotDropped(Micros, const SnapshotManifest& m) override {
    dropped.push_back(m.snapshot);
  }
  void OnSnapshotForgotten(Micros, const SnapshotRef& ref) override { forgotten.push_back(ref); }
  Status OnFinalWeights(Micros, Version version, const SnapshotManifest* stored,
                        const FloatBuffer&) override {
    if (differs && stored != nullptr) return Corrupt("shard 0 differs");
    final_version = version;
    has_weights = disk.ok();
    return disk;
  }

  template <class M>
  const M* LastTo(Incarnation to) const {
    for (auto it = sent.rbegin(); it != sent.rend(); ++it) {
      if (it->receiver.incarnation == to && std::holds_alternative<M>(it->message))
        return &std::get<M>(it->message);
    }
    return nullptr;
  }
  bool HasEvent(const std::string& name) const {
    for (const RunEvent& event : events) {
      if (event.name == name) return true;
    }
    return false;
  }
  std::vector<Envelope> sent;
  std::vector<RunEvent> events;
  std::vector<Step> rows;
  std::vector<EvaluationSummary> evaluations;
  std::vector<FaultRecord> faults;
  std::vector<SnapshotRef> snapshots;
  std::vector<SnapshotRef> dropped;
  std::vector<SnapshotRef> forgotten;
  bool has_weights = false;
  Version final_version;
  Status disk;           // what writing to it says
  bool differs = false;  // the final weights, from their snapshot
  bool is_reading = false;
  ShardId bad_shard{0};
};

class TestJournal : public Journal {
 public:
  Status Commit(const SchedulerState& next) override {
    if (refuses || (state && state->term > next.term)) return Unavailable("another one leads");
    state = next;
    return Status();
  }
  std::optional<SchedulerState> state;
  bool refuses = false;
};

inline JobPlan MakePlan(uint32_t workers, uint32_t servers, uint32_t replicas = 2) {
  Job job;
  job.workers = workers;
  job.servers = servers;
  job.replicas = replicas;
  job.steps = 1000;
  job.micro_batches = 8;
  job.snapshot_every = 0;
  DataFacts data{.train_samples = 1'000'000, .test_samples = 100, .fingerprint = 42};
  TensorLayout layout({{.name = "a", .shape = {3000}},
                       {.name = "b", .shape = {3000}},
                       {.name = "c", .shape = {3000}},
                       {.name = "d", .shape = {3000}},
                       MetricTensorSpec()});
  return JobPlan(job, data, std::move(layout));
}

// Servers have incarnations from 10, workers from 20; each has its own process id and host.
class Fixture {
 public:
  explicit Fixture(JobPlan plan_in = MakePlan(2, 2)) : plan(std::move(plan_in)) {
    StartScheduler();
  }

  void StartScheduler(bool is_resumed = false) {
    ++life;
    self = {kSchedulerNode, Incarnation(life), 0};
    scheduler = std::make_unique<Scheduler>(Scheduler::Options{.self = self,
                                                               .job = kJob,
                                                               .job_toml = "toml",
                                                               .snapshot_dir = snapshot_dir,
                                                               .schedulers = schedulers,
                                                               .next_row = next_row,
                                                               .state = journal.state,
                                                               .is_resumed = is_resumed,
                                                               .seal = seal},
                                            plan, journal, recorder, recorder);
  }

  // Sends a member's message, in the scheduler's view and generation.
  void From(uint64_t who, Message message, uint16_t lane = 0) {
    Say(who, std::move(message), lane, scheduler->view().id);
  }
  void Say(uint64_t who, Message message, uint16_t lane, ViewId view) {
    const Welcome* welcome = recorder.LastTo<Welcome>(Incarnation(who));
    if (welcome != nullptr) nodes[who] = welcome->node;
    const NodeId node = nodes.contains(who) ? nodes[who] : kUnknownNode;
    scheduler->OnMessage(now, {.job = kJob,
                               .generation = scheduler->view().generation,
                               .view = view,
                               .sender = {node, Incarnation(who), lane},
                               .receiver = self,
                               .message = std::move(message)});
    scheduler->Tick(now);
  }
  void Join(uint64_t who, Role role, const std::string& host = "h") {
    Register registration{
        .role = role, .host = host, .process_id = static_cast<uint32_t>(100 + who)};
    if (role == Role::kServer) registration.lane_endpoints = {"tcp://10.0.0.1:1"};
    From(who, registration);
  }
  void BeReady(uint64_t who) { From(who, Ready{.data_fingerprint = 42}); }
  void Add(uint64_t who, Role role, const std::string& host = "h") {
    Join(who, role, host);
    BeReady(who);
    Wait(milliseconds(10));
  }
  void StartAll() {
    for (uint64_t i = 0; i < plan.job.servers; ++i) Join(10 + i, Role::kServer);
    for (uint64_t i = 0; i < plan.job.workers; ++i) Join(20 + i, Role::kWorker);
    for (uint64_t i = 0; i < plan.job.servers; ++i) BeReady(10 + i);
    for (uint64_t i = 0; i < plan.job.workers; ++i) BeReady(20 + i);
  }
  // Lets time pass; all members of the view except `silent` send heartbeats.
  void Wait(Micros time, const std::vector<uint64_t>& silent = {}) {
    const Micros until = now + time;
    while (now < until) {
      now = std::min(until, now + milliseconds(50));
      for (const NodeInfo& node : std::vector(scheduler->view().nodes)) {
        const uint64_t who = node.incarnation.value();
        if (std::find(silent.begin(), silent.end(), who) == silent.end()) From(who, Heartbeat{});
      }
      scheduler->Tick(now);
    }
  }
  // Everybody's primary lanes report this version under the view.
  void Commit(uint64_t version) {
    std::set<PeerId> lanes;
    for (const ShardPlacement& placement : scheduler->view().shards)
      lanes.insert(placement.primary);
    for (const PeerId& lane : lanes)
      From(lane.incarnation.value(), Progress{Version(version), {}}, lane.lane);
  }
  // Every newcomer in the view becomes in sync, until nothing is syncing any more.
  void Sync() {
    for (int rounds = 0; rounds < 100; ++rounds) {
      const std::vector<ShardPlacement> shards = scheduler->view().shards;
      bool has_newcomer = false;
      for (uint32_t s = 0; s < shards.size(); ++s) {
        for (const SyncingBackup& syncing : shards[s].syncing_backups) {
          From(shards[s].primary.incarnation.value(),
               Synced{{{ShardId(s), syncing.peer, syncing.since}}}, shards[s].primary.lane);
          has_newcomer = true;
        }
      }
      Wait(milliseconds(300));
      if (!has_newcomer) return;
    }
  }
  void Exit(uint64_t who, Role role) {
    From(900, FaultNote{.number = 1,
                        .action = "exit",
                        .role = role,
                        .host = "h",
                        .process_id = static_cast<uint32_t>(100 + who),
                        .exited_us = static_cast<uint64_t>(now.count())});
  }
  // The things for which the run waits, as `pando status` prints them.
  std::string WaitingText() const {
    return ParseStatus(scheduler->StatusJson(now))->waiting_for.value_or("");
  }
  NodeId NodeFor(uint64_t who) const {
    for (const NodeInfo& node : scheduler->view().nodes) {
      if (node.incarnation == Incarnation(who)) return node.node;
    }
    return kUnknownNode;
  }
  uint32_t CountShares(uint64_t who) const {
    uint32_t count = 0;
    for (const MicroBatchOwner& owner : scheduler->view().owners)
      count += owner.worker == NodeFor(who);
    return count;
  }
  // A shard whose primary is a lane of this server; the first shard if it has none.
  ShardId LedBy(uint64_t who) const {
    const auto& shards = scheduler->view().shards;
    for (uint32_t s = 0; s < shards.size(); ++s) {
      if (shards[s].primary.incarnation == Incarnation(who)) return ShardId(s);
    }
    return ShardId(0);
  }
  bool IsNamed(uint64_t who) const {
    for (const ShardPlacement& p : scheduler->view().shards) {
      if (p.primary.incarnation == Incarnation(who)) return true;
      for (const PeerId& b : p.in_sync_backups) {
        if (b.incarnation == Incarnation(who)) return true;
      }
      for (const SyncingBackup& s : p.syncing_backups) {
        if (s.peer.incarnation == Incarnation(who)) return true;
      }
    }
    return false;
  }

  static constexpr JobId kJob{9};
  JobPlan plan;
  std::string snapshot_dir;
  Step next_row;  // of the next scheduler
  const std::vector<SchedulerPlace>* schedulers = nullptr;
  Recorder recorder;
  TestJournal journal;
  std::map<uint64_t, NodeId> nodes;
  ViewSeal* seal = nullptr;  // for the next life
  uint64_t life = 0;
  PeerId self;
  std::unique_ptr<Scheduler> scheduler;
  Micros now{1'000'000};
};

}  // namespace pando
