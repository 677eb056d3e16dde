#include "train/task_queue.h"

#include <doctest/doctest.h>

#include <thread>

#include "tests/train/trainer_fixture.h"

namespace pando {
namespace {

struct QueueFixture {
  std::shared_ptr<ComputeCall> Push(uint64_t ticket, uint64_t step,
                                    std::initializer_list<uint32_t> micro_batches) {
    auto call = std::make_shared<ComputeCall>(ComputeTicket(ticket), ComputeTicket(0), Step(step));
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
  // Step, ticket and index of the next task, which is a micro-batch.
  std::tuple<uint64_t, uint64_t, uint32_t> TakeMicroBatch() {
    const auto task = std::get<MicroBatchTask>(*queue.Take());
    return {task.call->step.value(), task.call->ticket.value(), task.micro_batch.value()};
  }

  TestJob test{TestJob::SmallMlp()};
  BatchSource batches{test.data, test.plan.steps, test.job.seed, 0};
  HeldBytes held_bytes;
  ParameterStore parameters{test.plan.shards, {}, held_bytes};
  TaskQueue queue{test.plan.steps, 2, batches, parameters};
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

TEST_CASE("the first failure of a call abandons it") {
  QueueFixture f;
  const auto call = f.Push(1, 0, {0, 1});
  f.Push(2, 1, {0});
  f.TakeMicroBatch();
  CHECK(f.queue.AbandonFailed(*call));
  CHECK_FALSE(f.queue.AbandonFailed(*call));
  CHECK(f.TakeMicroBatch() == std::tuple(1, 2, 0));
}

TEST_CASE("a thread that waits for a task returns when the queue stops") {
  QueueFixture f;
  std::thread waiter([&] { CHECK_FALSE(f.queue.Take().has_value()); });
  f.queue.Stop();
  waiter.join();
  f.Push(1, 0, {0});
  CHECK_FALSE(f.queue.Take().has_value());
}

}  // namespace
}  // namespace pando
