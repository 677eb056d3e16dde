#include "train/task_queue.h"

#include <doctest/doctest.h>

#include <thread>

#include "tests/train/trainer_fixture.h"

namespace pando {
namespace {

struct QueueFixture {
  std::shared_ptr<ComputeCall> Push(uint64_t ticket, uint64_t step,
                                    std::initializer_list<uint32_t> micro_batches) {
    auto call = std::make_shared<ComputeCall>(ComputeTicket(ticket), ComputeTicket(0), Step(step),
                                              Version(step));
    queue.Push(call, MicroBatches(micro_batches));
    return call;
  }
  std::shared_ptr<SliceEvaluation> PushChunks(size_t chunk_count) {
    auto evaluation = std::make_shared<SliceEvaluation>();
    evaluation->request.last_sample = chunk_count * kEvaluationChunkSamples;
    evaluation->scores.resize(chunk_count);
    queue.Push(evaluation);
    return evaluation;
  }
  // A call whose share is guessed for the next steps.
  void PushStep(uint64_t ticket, uint64_t step, std::initializer_list<uint32_t> micro_batches) {
    auto call = std::make_shared<ComputeCall>(ComputeTicket(ticket), ComputeTicket(0), Step(step),
                                              Version(step));
    call->sum.emplace(test.plan.steps.Tree(Step(step)),
                      test.plan.NodesToPush(Step(step), MicroBatches(micro_batches)),
                      test.plan.shards);
    queue.Push(call, MicroBatches(micro_batches));
  }
  // Step, ticket and index of the next task, which is a micro-batch.
  std::tuple<uint64_t, uint64_t, uint32_t> TakeMicroBatch() {
    const auto task = std::get<MicroBatchTask>(*queue.Take());
    return {task.call->step.value(), task.call->ticket.value(), task.micro_batch.value()};
  }

  TestJob test{TestJob::SmallMlp()};
  HeldBytes held_bytes;
  ParameterStore parameters{test.plan.shards, {}, held_bytes};
  TaskQueue queue{parameters};
};

TEST_CASE("micro-batches leave in the order of step, call and index") {
  QueueFixture f;
  f.Push(1, 3, {2});
  f.Push(2, 2, {1, 3});
  f.Push(3, 2, {0});
  CHECK(f.TakeMicroBatch() == std::tuple(2, 2, 1));
  CHECK(f.TakeMicroBatch() == std::tuple(2, 2, 3));
  CHECK(f.TakeMicroBatch() == std::tuple(2, 3, 0));
  CHECK(f.TakeMicroBatch() == std::tuple(3, 1, 2));
}

TEST_CASE("chunks leave before micro-batches, until they are dropped") {
  QueueFixture f;
  f.Push(1, 0, {0});
  CHECK_FALSE(f.queue.has_chunks());
  f.PushChunks(3);
  CHECK(f.queue.has_chunks());
  CHECK(std::get<ChunkTask>(*f.queue.Take()).chunk == 0);
  CHECK(std::get<ChunkTask>(*f.queue.Take()).chunk == 1);
  f.queue.DropChunks();
  CHECK_FALSE(f.queue.has_chunks());
  CHECK(f.TakeMicroBatch() == std::tuple(0, 1, 0));
}

TEST_CASE("abandoned calls leave the queue, and those at work are marked") {
  QueueFixture f;
  const auto at_work = f.Push(1, 0, {0, 1});
  const auto other = f.Push(2, 1, {0});
  f.TakeMicroBatch();
  f.queue.Abandon([](const ComputeCall& call) { return call.step == Step(0); });
  CHECK(at_work->is_abandoned);
  CHECK_FALSE(other->is_abandoned);
  CHECK(f.TakeMicroBatch() == std::tuple(1, 2, 0));
}

TEST_CASE("a task that is given back is taken again, unless its call was abandoned") {
  QueueFixture f;
  f.Push(1, 0, {0});
  f.Push(2, 1, {0});
  const auto task = std::get<MicroBatchTask>(*f.queue.Take());
  f.queue.GiveBack(task);
  CHECK(f.TakeMicroBatch() == std::tuple(0, 1, 0));
  f.queue.Abandon([](const ComputeCall& call) { return call.step == Step(0); });
  f.queue.GiveBack(task);
  CHECK(f.TakeMicroBatch() == std::tuple(1, 2, 0));
}

TEST_CASE("a chunk that is given back is taken again, unless its evaluation was abandoned") {
  QueueFixture f;
  const auto evaluation = f.PushChunks(1);
  const auto chunk = std::get<ChunkTask>(*f.queue.Take());
  f.queue.GiveBack(chunk);
  CHECK(f.queue.has_chunks());
  CHECK(std::get<ChunkTask>(*f.queue.Take()).evaluation == evaluation);
  evaluation->is_abandoned = true;
  f.queue.GiveBack(chunk);
  CHECK_FALSE(f.queue.has_chunks());
}

TEST_CASE("the next steps are expected to have the same share") {
  using Parts = std::vector<TaskQueue::StepPart>;
  QueueFixture f;
  CHECK(f.queue.Expected(0, 3).empty());
  f.PushStep(2, 5, {2, 3});
  const TaskQueue::StepPart a(Step(5), MicroBatch(2)), b(Step(5), MicroBatch(3)),
      c(Step(6), MicroBatch(2)), d(Step(6), MicroBatch(3)), e(Step(7), MicroBatch(2));
  CHECK(f.queue.Expected(0, 1) == Parts{a});
  CHECK(f.queue.Expected(0, 5) == Parts{a, b, c, d, e});
  CHECK(f.queue.Expected(1, 2) == Parts{b, c});
  CHECK(f.queue.Expected(4, 1) == Parts{e});
  CHECK(f.queue.Expected(0, 5, 1) == Parts{a, b, c, d});
  CHECK(f.queue.Expected(0, 5, 0) == Parts{a, b});
  f.TakeMicroBatch();
  CHECK(f.queue.Expected(0, 2) == Parts{b, c});
  f.PushStep(3, 4, {0});  // an earlier step again
  CHECK(f.queue.Expected(0, 3) == Parts{{Step(4), MicroBatch(0)}, b, c});
  f.queue.Abandon([](const ComputeCall&) { return true; });
  CHECK(f.queue.Expected(0, 3).empty());
}

TEST_CASE("a hashed micro-batch that is partly in the sum is dropped only by a new generation") {
  ComputeCall call{.ticket = ComputeTicket(1), .lasting_ticket = ComputeTicket(0), .step = Step(0)};
  CHECK_FALSE(call.IsDropped(false, false));
  call.is_abandoned = true;
  CHECK(call.IsDropped(true, false));
  CHECK(call.IsDropped(false, true));
  CHECK_FALSE(call.IsDropped(true, true));
  call.is_forgotten = true;
  CHECK(call.IsDropped(true, true));
}

TEST_CASE("the first failure of a call abandons it") {
  QueueFixture f;
  const auto call = f.Push(1, 0, {0, 1});
  f.Push(2, 1, {0});
  f.TakeMicroBatch();
  CHECK(f.queue.AbandonFailed(*call));
  CHECK_FALSE(f.queue.AbandonFailed(*call));
  CHECK(f.TakeMicroBatch() == std::tuple(1, 2, 0));
}

TEST_CASE("a thread that waits for a task returns with one, and when the queue stops") {
  QueueFixture f;
  CHECK_FALSE(f.queue.Take(std::chrono::steady_clock::now()).has_value());
  std::thread giver([&] { f.Push(1, 0, {0}); });
  CHECK(f.queue.Take(std::chrono::steady_clock::now() + std::chrono::minutes(1)).has_value());
  giver.join();
  std::thread waiter([&] { CHECK_FALSE(f.queue.Take().has_value()); });
  f.queue.Stop();
  waiter.join();
  f.Push(1, 0, {0});
  CHECK_FALSE(f.queue.Take().has_value());
}

}  // namespace
}  // namespace pando
