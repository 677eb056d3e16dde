#include "embed/work_queue.h"

#include <doctest/doctest.h>

#include <thread>

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

std::shared_ptr<ProgramCall> MakeCall(uint64_t ticket, uint64_t step) {
  auto call = std::make_shared<ProgramCall>(ComputeTicket(ticket), ComputeTicket(1), Step(step));
  return call;
}

bool Never() { return false; }

// "step.micro-batch" or "evaluation"; "-" if there is none.
std::string TakeText(WorkQueue& queue) {
  const std::optional<ProgramTask> task = queue.Take(Clock::now(), Never);
  if (!task) return "-";
  const auto* work = std::get_if<MicroBatchWork>(&*task);
  if (work == nullptr) return "evaluation";
  return std::to_string(work->call->step.value()) + "." + std::to_string(work->micro_batch.value());
}

TEST_CASE("micro-batches leave by step and index, and evaluations before them") {
  WorkQueue queue;
  queue.Push(MakeCall(3, 1), {MicroBatch(0)});
  queue.Push(MakeCall(2, 0), {MicroBatch(1), MicroBatch(2)});
  queue.Push(std::make_shared<ProgramEvaluation>(ComputeTicket(1), Evaluate{}));
  CHECK(queue.has_evaluations());
  CHECK(TakeText(queue) == "evaluation");
  CHECK(!queue.has_evaluations());
  CHECK(TakeText(queue) == "0.1");
  CHECK(TakeText(queue) == "0.2");
  CHECK(TakeText(queue) == "1.0");
  CHECK(TakeText(queue) == "-");
}

TEST_CASE("work that is given back comes again, unless it was abandoned") {
  WorkQueue queue;
  const auto call = MakeCall(2, 0);
  queue.Push(call, {MicroBatch(0), MicroBatch(1)});
  const MicroBatchWork work = std::get<MicroBatchWork>(*queue.Take(Clock::now(), Never));
  queue.GiveBack(work);
  CHECK(TakeText(queue) == "0.0");
  call->is_abandoned = true;
  queue.GiveBack(work);
  queue.DropAbandoned();
  CHECK(TakeText(queue) == "-");
}

TEST_CASE("the next steps are guessed to have the same share") {
  WorkQueue queue;
  CHECK(!queue.Peek(0));
  const ShardPlan shards{TensorLayout({MetricTensorSpec()})};
  auto call = MakeCall(2, 5);
  call->sum.emplace(MicroBatchTree({4, 8}), std::vector<TreeNode>{MicroBatchTree::kRoot}, shards);
  queue.Push(call, {MicroBatch(2), MicroBatch(3)});
  using Guess = std::pair<Step, MicroBatch>;
  CHECK(queue.Peek(1) == Guess(Step(5), MicroBatch(3)));
  CHECK(queue.Peek(2) == Guess(Step(6), MicroBatch(2)));
  CHECK(queue.Peek(5) == Guess(Step(7), MicroBatch(3)));
  TakeText(queue);
  CHECK(queue.Peek(0) == Guess(Step(5), MicroBatch(3)));
  CHECK(queue.Peek(1) == Guess(Step(6), MicroBatch(2)));
}

TEST_CASE("a thread that waits returns with work, with the end, and at its deadline") {
  WorkQueue queue;
  CHECK(!queue.Take(Clock::now(), Never));
  std::thread giver([&] { queue.Push(MakeCall(2, 0), {MicroBatch(0)}); });
  CHECK(queue.Take(Clock::now() + std::chrono::minutes(1), Never));
  giver.join();
  std::atomic<bool> is_over = false;
  std::thread ender([&] {
    is_over = true;
    queue.Wake();
  });
  CHECK(!queue.Take(Clock::now() + std::chrono::minutes(1), [&] { return is_over.load(); }));
  ender.join();
}

}  // namespace
}  // namespace pando
