// Shared by the tests of the session: a job of few shards on two lanes, and both ends of the wire
// in virtual time.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/float_buffer.h"
#include "plan/job_plan.h"
#include "tests/train/micro_batches.h"
#include "tests/worker/compute_log.h"
#include "worker/session.h"

namespace pando {

class SessionFixture : private Outbox {
 public:
  static Job SmallJob() {
    Job job;
    job.steps = 10'000;
    job.global_batch = 8;
    job.micro_batches = 8;
    return job;
  }
  explicit SessionFixture(const Job& job = SmallJob(), uint32_t rank = 0,
                          std::optional<size_t> push_window_bytes = {}, uint32_t shard_count = 2)
      : plan(
            job, {.train_samples = 800},
            TensorLayout({{.name = "w", .shape = {1024 * (shard_count - 1)}}, MetricTensorSpec()})),
        rank_(rank),
        self_{kWorkers[rank], Incarnation(100 + rank), 0},
        session({{self_, kScheduler, JobId(7)}, {.kind = "test"}, push_window_bytes}, plan, compute,
                *this) {
    REQUIRE(plan.shards.shard_count() == shard_count);
  }
  uint32_t shard_count() const { return static_cast<uint32_t>(plan.shards.shard_count()); }

  // Workers 0, 1, 2 own micro-batches 0-3, 4-5, 6-7.
  View MakeView(uint64_t number) const {
    View view{.id = {1, number}};
    view.nodes.push_back({.node = kLaneA.node, .incarnation = kLaneA.incarnation});
    view.nodes.push_back({.node = kLaneB.node, .incarnation = kLaneB.incarnation});
    view.nodes.push_back({.node = kNewLane.node, .incarnation = kNewLane.incarnation});
    for (NodeInfo& node : view.nodes) node.role = Role::kServer;
    for (uint32_t i = 0; i < 3; ++i)
      view.nodes.push_back({.node = kWorkers[i], .incarnation = Incarnation(100 + i), .rank = i});
    for (uint32_t i = 0; i < shard_count(); ++i)
      view.shards.push_back({.primary = i % 2 == 0 ? kLaneA : kLaneB});
    for (uint32_t i : {0, 0, 0, 0, 1, 1, 2, 2}) view.owners.push_back({.worker = kWorkers[i]});
    return view;
  }

  // ---- time and messages ----
  void Receive(const PeerId& from, Message message) {
    ReceiveIn(session.view().id, from, std::move(message));
  }
  void ReceiveIn(ViewId view, const PeerId& from, Message message) {
    session.OnMessage(now, {.job = JobId(7),
                            .generation = session.view().generation,
                            .view = view,
                            .sender = from,
                            .receiver = self_,
                            .message = std::move(message)});
    session.Tick(now);
  }
  void Enter(const View& view, const PeerId& from = kScheduler) { Receive(from, ViewUpdate{view}); }
  // Ticks whenever the session wants to, as an event loop would.
  void Wait(Micros time) {
    const Micros end = now + time;
    int64_t turns_left = 10 + time / std::chrono::milliseconds(1);
    while (session.NextDeadline() <= end) {
      REQUIRE(turns_left-- > 0);  // a deadline that a tick does not move would spin the loop
      now = std::max(now + Micros(1), session.NextDeadline());
      session.Tick(now);
    }
    now = std::max(now, end);
    session.Tick(now);
  }
  template <class M>
  std::vector<std::pair<PeerId, M>> Take() {  // those sent so far, in order
    std::vector<std::pair<PeerId, M>> taken;
    for (Envelope& envelope : sent_) {
      if (auto* message = std::get_if<M>(&envelope.message))
        taken.emplace_back(envelope.receiver, std::move(*message));
    }
    std::erase_if(sent_, [](const Envelope& e) { return std::holds_alternative<M>(e.message); });
    return taken;
  }
  void DropSent() { sent_.clear(); }

  // ---- lanes ----
  void AnswerFrom(const PeerId& lane, uint32_t shard, uint64_t version,
                  std::vector<TreeNode> nodes = {}) {
    Receive(lane, Answer{session.view().id, {{ShardId(shard), Version(version), nodes}}});
  }
  void AnswerAll(uint64_t version, const std::vector<TreeNode>& nodes = {}) {
    for (uint32_t shard = 0; shard < shard_count(); ++shard)
      AnswerFrom(session.view().shards[shard].primary, shard, version, nodes);
  }
  void GiveParams(uint32_t shard, uint64_t version) {
    GiveParams(session.view().shards[shard].primary, shard, version);
  }
  void GiveParams(const PeerId& from, uint32_t shard, uint64_t version) {
    auto floats = std::make_shared<FloatBuffer>(plan.shards.range(ShardId(shard)).size());
    Receive(from, Params{{{ShardId(shard), Version(version), ToBlob(SharedBuffer(floats))}}});
  }
  void GiveParamsFrom(const PeerId& from, uint64_t version) {
    for (uint32_t shard = 0; shard < shard_count(); ++shard) GiveParams(from, shard, version);
  }
  void GiveParams(uint64_t version) {
    for (uint32_t shard = 0; shard < shard_count(); ++shard) GiveParams(shard, version);
  }

  // ---- computing side ----
  void Emit(ComputeEvent event) {
    session.OnComputeEvent(now, std::move(event));
    session.Tick(now);
  }
  // Emits a call's events.
  void FinishCall(const ComputeLog::Call& call) {
    for (TreeNode node : plan.steps.Tree(call.step).Cover(call.micro_batches)) {
      for (uint32_t shard = shard_count(); shard-- > 0;) {  // in the order of backward
        auto sum = std::make_shared<FloatBuffer>(plan.shards.range(ShardId(shard)).size());
        Emit(GradientReady{call.step, node, ShardId(shard), ToBlob(SharedBuffer(sum))});
      }
    }
    Emit(StepComputed{call.step});
  }
  // Our part of a step whose parameters are here: computed, pushed, and the next version follows
  // after `time`.
  void RunStep(uint64_t step, Micros time) {
    const auto call = std::ranges::find(compute.calls, Step(step), &ComputeLog::Call::step);
    REQUIRE(call != compute.calls.end());
    FinishCall(ComputeLog::Call(*call));
    Wait(time);
    GiveParams(step + 1);
  }
  // In the first view, started at version 0, whose parameters are here.
  void Start() {
    Enter(MakeView(1));
    AnswerAll(0);
    GiveParams(0);
  }

  const JobPlan plan;
  ComputeLog compute;
  Micros now{1'000'000};

 private:
  void Send(Envelope envelope) override { sent_.push_back(std::move(envelope)); }

  const uint32_t rank_;
  const PeerId self_;
  std::vector<Envelope> sent_;

 public:
  Session session;
};

}  // namespace pando
