// Shared by the tests of the session's parts: a job of two shards on two lanes, three workers, and
// the parts below most others. The worker is the first one.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/float_buffer.h"
#include "plan/job_plan.h"
#include "proto/view_member.h"
#include "tests/train/micro_batches.h"
#include "tests/worker/compute_log.h"
#include "worker/lane_requests.h"

namespace pando {

inline constexpr PeerId kSelf{kWorkers[0], Incarnation(100), 0};
inline constexpr TreeNode kOurs{2};  // micro-batches 0-3 of 8

class PartsFixture : private Outbox, private SessionListener {
 public:
  static Job SmallJob() {
    Job job;
    job.steps = 10'000;
    job.global_batch = 8;
    job.micro_batches = 8;
    return job;
  }
  static Job StaleJob() {
    Job job = SmallJob();
    job.staleness = 1;
    return job;
  }
  explicit PartsFixture(const Job& job = SmallJob())
      : plan(job, {.train_samples = 800, .test_samples = 100},
             TensorLayout({{.name = "w", .shape = {1600}}, MetricTensorSpec()})),
        member({kSelf, kScheduler, JobId(7)}, *this),
        versions(plan.shards.shard_count(), *this),
        gradients(plan.steps, plan.shards.shard_count()),
        steps(shared, *this),
        parameters(shared, steps),
        lanes(2 * std::chrono::milliseconds(plan.job.lease_ms), member),
        requests(shared, parameters, lanes) {
    REQUIRE(plan.shards.shard_count() == 2);
  }

  // Workers 0, 1, 2 own micro-batches 0-3, 4-5, 6-7.
  static View MakeView(uint64_t number = 1) {
    View view{.id = {1, number}};
    view.nodes.push_back({.node = kLaneA.node, .incarnation = kLaneA.incarnation});
    view.nodes.push_back({.node = kLaneB.node, .incarnation = kLaneB.incarnation});
    for (NodeInfo& node : view.nodes) node.role = Role::kServer;
    for (uint32_t i = 0; i < 3; ++i)
      view.nodes.push_back({.node = kWorkers[i], .incarnation = Incarnation(100 + i), .rank = i});
    view.shards = {{.primary = kLaneA}, {.primary = kLaneB}};
    for (uint32_t i : {0, 0, 0, 0, 1, 1, 2, 2}) view.owners.push_back({.worker = kWorkers[i]});
    return view;
  }
  void Enter(const View& view = MakeView()) { REQUIRE(member.Enter(kLaneA, view)); }
  // All shards answer that they have this version, and hold these nodes of the next.
  static ShardAnswers Answers(uint64_t version, const std::vector<TreeNode>& nodes = {}) {
    ShardAnswers answers;
    for (uint32_t s : {0, 1}) answers.Add({ShardId(s), Version(version), nodes});
    return answers;
  }
  // In the first view, with steps 0 and 1 handed to compute.
  void Start() {
    Enter();
    steps.OnAnswered(Answers(0));
    steps.Advance();
  }
  void Commit(uint64_t version) { versions.LearnAll(Version(version)); }

  Blob Payload(uint32_t shard, float value = 0) const {
    auto floats = std::make_shared<FloatBuffer>(plan.shards.range(ShardId(shard)).size());
    std::ranges::fill(floats->span(), value);
    return ToBlob(SharedBuffer(floats));
  }
  ParamsItem Params(uint32_t shard, uint64_t version) const {
    return {ShardId(shard), Version(version), Payload(shard)};
  }
  UnrepliedGradient Gradient(uint32_t shard, uint64_t step, TreeNode node = kOurs,
                             float value = 0) const {
    return {.step = Step(step), .node = node, .payload = Payload(shard, value)};
  }
  // Gradients of both shards, unsent.
  void AddGradients(uint64_t step) {
    for (uint32_t s : {0, 1}) gradients.Add(ShardId(s), Gradient(s, step));
  }
  // The same, pushed.
  void AddPushed(Micros now, uint64_t step) {
    for (uint32_t s : {0, 1}) {
      const size_t index = gradients.shard(ShardId(s)).size();
      gradients.Add(ShardId(s), Gradient(s, step));
      gradients.MarkSent(ShardId(s), index, Delivery::kPushed);
      requests.OnAsked(now, ShardId(s), VersionMadeBy(Step(step)));
      requests.Expect(now, lanes.primary(ShardId(s)));
    }
  }
  template <class M>
  std::vector<std::pair<PeerId, M>> Take() {  // those sent so far, in order
    std::vector<std::pair<PeerId, M>> taken;
    for (Envelope& envelope : sent) {
      if (auto* message = std::get_if<M>(&envelope.message))
        taken.emplace_back(envelope.receiver, std::move(*message));
    }
    std::erase_if(sent, [](const Envelope& e) { return std::holds_alternative<M>(e.message); });
    return taken;
  }

  const JobPlan plan;
  ComputeLog compute;
  ViewMember member;
  CommittedVersions versions;
  UnrepliedGradients gradients;
  const SessionPart shared{plan, member, versions, gradients, compute};
  Steps steps;
  Parameters parameters;
  Lanes lanes;
  LaneRequests requests;
  std::vector<Envelope> sent;
  std::vector<std::pair<ShardId, Version>> committed;
  std::vector<Step> begun;
  std::vector<Step> abandoned;

 private:
  void Send(Envelope envelope) override { sent.push_back(std::move(envelope)); }
  void OnCommitted(ShardId shard, Version version) override {
    committed.emplace_back(shard, version);
    gradients.OnCommitted(shard, version);
    requests.OnCommitted(shard);
  }
  void OnStepBegun(Step step) override { begun.push_back(step); }
  void OnStepsAbandoned(Step from) override { abandoned.push_back(from); }
};

}  // namespace pando
