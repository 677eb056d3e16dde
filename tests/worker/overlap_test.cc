// Gradients leave while backward still runs: the real train step and the real session on one
// thread, so that no clock has a say. Before each layer MicroBatchPass asks whether it is
// abandoned; what has been pushed when it asks for the last time has left before backward ended.
#include <doctest/doctest.h>

#include "tests/train/plain_port.h"
#include "tests/train/trainer_fixture.h"
#include "tests/worker/session_fixture.h"

namespace pando {
namespace {

// The only worker of a job whose shards lie on one lane, or in turn on two.
class OneWorker : private Outbox {
 public:
  OneWorker(const TestJob& test, uint32_t lane_count)
      : test_(test),
        lanes_(lane_count == 1 ? std::vector{kLaneA} : std::vector{kLaneA, kLaneB}),
        parameters_(test.plan.shards, {}, held_bytes_),
        gradients_(test.plan.layout.float_count()),
        session_({{kSelf, kScheduler, JobId(7)}, {.kind = "test"}}, test.plan, compute_, *this) {
    Receive(kScheduler, ViewUpdate{FirstView()});
    for (const PeerId& lane : lanes_) Receive(lane, MakeAnswer(lane));
    const SharedBuffer values = test.Parameters();
    for (const ShardId shard : Shards()) {
      const ShardRange& range = test.plan.shards.range(shard);
      const Blob payload = ToBlob(values, range.first, range.size());
      parameters_.Put(shard, Version(0), payload);
      Receive(LaneFor(shard), Params{{{shard, Version(0), payload}}});
    }
  }

  struct Bytes {
    size_t before_the_end = 0;  // of the last micro-batch's backward
    size_t all = 0;
  };
  // Computes and pushes step 0.
  Bytes PushStep() {
    SetFloatEnvironment();
    REQUIRE_FALSE(compute_.calls.empty());  // step 1 may be handed out already
    const ComputeLog::Call call = compute_.calls[0];
    const JobPlan& plan = test_.plan;
    TreeSum sum(plan.steps.Tree(call.step), plan.NodesToPush(call.step, call.micro_batches),
                plan.shards);
    BatchSource batches(test_.data, test_.plan.steps, test_.job.seed, 0);
    const auto samples = static_cast<uint32_t>(test_.plan.steps.micro_batch_samples_max());
    ErrorFeedback feedback(plan);
    StepTimeline timeline(nullptr, "");
    Network network(test_.model, {.training = samples});
    MicroBatchPass pass(
        network, {},
        {test_.plan, batches, parameters_, gradients_, gradients_, gradients_, feedback, timeline});
    Bytes bytes;
    PlainPort port([&](const GradientReady& ready) { Emit(ready); },
                   [&] { bytes.before_the_end = pushed_bytes_; });
    for (const MicroBatch m : call.micro_batches) {
      const Status status = pass.Run(
          {.step = call.step, .micro_batch = m, .sum = &sum, .sink = port.sink, .control = port});
      REQUIRE_MESSAGE(status.ok(), status.message());
    }
    Emit(StepComputed{call.step});
    bytes.all = pushed_bytes_;
    return bytes;
  }

 private:
  static constexpr Micros kNow{1'000'000};
  static constexpr PeerId kSelf{kWorkers[0], Incarnation(100), 0};

  const PeerId& LaneFor(ShardId shard) const { return lanes_[shard.value() % lanes_.size()]; }
  std::vector<ShardId> Shards() const {
    std::vector<ShardId> shards;
    for (uint32_t s = 0; s < test_.plan.shards.shard_count(); ++s) shards.emplace_back(s);
    return shards;
  }
  View FirstView() const {
    View view{.id = {1, 1}};
    for (const PeerId& lane : lanes_) {
      view.nodes.push_back(
          {.node = lane.node, .incarnation = lane.incarnation, .role = Role::kServer});
    }
    view.nodes.push_back({.node = kSelf.node, .incarnation = kSelf.incarnation});
    for (const ShardId shard : Shards()) view.shards.push_back({.primary = LaneFor(shard)});
    view.owners.assign(test_.job.micro_batches, {.worker = kSelf.node});
    return view;
  }
  // It has version 0, and nothing of step 0.
  Answer MakeAnswer(const PeerId& lane) const {
    Answer answer{.view = {1, 1}};
    for (const ShardId shard : Shards()) {
      if (LaneFor(shard) == lane) answer.items.push_back({shard, Version(0), {}});
    }
    return answer;
  }

  void Receive(const PeerId& from, Message message) {
    session_.OnMessage(kNow, {.job = JobId(7),
                              .view = session_.view().id,
                              .sender = from,
                              .receiver = kSelf,
                              .message = std::move(message)});
    session_.Tick(kNow);
  }
  void Emit(ComputeEvent event) {
    session_.OnComputeEvent(kNow, std::move(event));
    session_.Tick(kNow);
  }
  void Send(Envelope envelope) override {
    const auto* push = std::get_if<Push>(&envelope.message);
    if (push == nullptr) return;
    for (const auto& item : push->items) pushed_bytes_ += item.payload.size_bytes();
  }

  const TestJob& test_;
  const std::vector<PeerId> lanes_;
  ComputeLog compute_;
  HeldBytes held_bytes_;
  ParameterStore parameters_;
  BufferPool gradients_;
  size_t pushed_bytes_ = 0;
  Session session_;
};

TEST_CASE("an MLP of six layers pushes at least half its bytes before backward ends") {
  Job job = TestJob::SmallMlp();
  job.mlp_hidden = {64, 256, 256, 256, 256};  // what backward reaches last is a small share
  const TestJob test(job);
  OneWorker worker(test, 2);
  const OneWorker::Bytes pushed = worker.PushStep();
  CHECK(pushed.all == test.plan.layout.float_count() * sizeof(float));
  CHECK(2 * pushed.before_the_end >= pushed.all);
}

TEST_CASE("what is not worth a message by itself is pushed when backward ends") {
  const TestJob test(TestJob::MnistCnn(), {28, 28, 1});
  OneWorker worker(test, 1);
  const OneWorker::Bytes pushed = worker.PushStep();
  CHECK(pushed.all == test.plan.layout.float_count() * sizeof(float));
  REQUIRE(pushed.all < PushGroups::kBytesMax);
  CHECK(pushed.before_the_end == 0);
}

}  // namespace
}  // namespace pando
