// WorkQueue holds the program's next work: micro-batches, and slices of the test set, which go
// first. The protocol thread fills it, and the program empties it. ProgramComputer uses it.
// Threads: any. Invariant: micro-batches leave in the order of step, call and index.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "proto/messages.h"
#include "train/compute_port.h"
#include "train/tree_sum.h"

namespace pando {

// One Compute or Verify of the session.
struct ProgramCall {
  const ComputeTicket ticket;
  const ComputeTicket lasting_ticket;  // for events that outlive Abandon
  const Step step;
  std::optional<TreeSum> sum = {};  // none: a verification (P41)
  std::atomic<bool> is_abandoned = false;
  std::atomic<bool> is_forgotten = false;    // it belongs to an earlier generation
  std::atomic<size_t> unfinished_count = 0;  // micro-batches
  // By micro-batch, the shards that are in the sum, so that work which is dropped half-way and
  // given out again does not add them twice. Guarded by WorkResults.
  std::map<MicroBatch, std::vector<bool>> added = {};
};

struct ProgramEvaluation {
  ComputeTicket ticket;
  Evaluate request;
  std::atomic<bool> is_abandoned = false;
};

struct MicroBatchWork {
  std::shared_ptr<ProgramCall> call;
  MicroBatch micro_batch;
};
using ProgramTask = std::variant<MicroBatchWork, std::shared_ptr<ProgramEvaluation>>;

class WorkQueue {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // ---- protocol thread ----
  void Push(const std::shared_ptr<ProgramCall>& call, const std::vector<MicroBatch>& micro_batches);
  void Push(std::shared_ptr<ProgramEvaluation> evaluation);
  // Drops micro-batches whose call is abandoned.
  void DropAbandoned();
  void DropEvaluations();
  // Wakes the thread that waits in Take, to check `is_over`.
  void Wake();

  // ---- the program's threads ----
  // Blocks until there is work; returns none if `is_over` or at the deadline.
  std::optional<ProgramTask> Take(Deadline deadline, const std::function<bool()>& is_over);
  void GiveBack(const MicroBatchWork& work);
  // Returns the micro-batch that Take will most likely return after `ahead` others: first queued
  // ones, then those of the next steps, with the last call's share again.
  std::optional<std::pair<Step, MicroBatch>> Peek(uint32_t ahead) const;
  bool has_evaluations() const { return evaluation_count_ > 0; }  // without a lock

 private:
  using Key = std::tuple<Step, ComputeTicket, MicroBatch>;

  mutable std::mutex mutex_;  // guards all members below, except reads of the count
  std::condition_variable has_news_;
  std::map<Key, MicroBatchWork> micro_batches_;
  std::deque<std::shared_ptr<ProgramEvaluation>> evaluations_;
  std::atomic<size_t> evaluation_count_ = 0;
  Step guessed_step_;  // the step after the last call's
  std::vector<MicroBatch> guessed_share_;
};

}  // namespace pando
