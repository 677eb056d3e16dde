// TaskQueue holds the work that the trainer's computing threads take next, and tells the batch
// source which samples to read ahead for it. Filled by the protocol thread.
// Threads: any. Owns: the queue. Invariants: micro-batches leave in the order of step, call and
// index; chunks of an evaluation leave before all micro-batches.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "data/batch_source.h"
#include "train/compute_call.h"
#include "train/parameter_store.h"

namespace pando {

class TaskQueue {
 public:
  // At most `read_ahead_max` batches are read ahead. Threads that wait for `parameters` are woken
  // when the queue has news for them. Both references outlive the queue.
  TaskQueue(const StepPlan& steps, size_t read_ahead_max, BatchSource& batches,
            ParameterStore& parameters);

  // ---- protocol thread ----
  void Push(const std::shared_ptr<ComputeCall>& call, const std::vector<MicroBatch>& micro_batches);
  // All chunks of the evaluation.
  void Push(const std::shared_ptr<SliceEvaluation>& evaluation);
  void DropChunks();
  // Drops queued micro-batches of these calls, and sets `abandoned` of those that are at work.
  void Abandon(const std::function<bool(const ComputeCall&)>& is_abandoned);
  // From now on Take returns at once and without a task.
  void Stop();

  // ---- computing threads ----
  // Blocks until there is a task; none after Stop.
  std::optional<ComputeTask> Take();
  // The batch of the micro-batch that a thread will most likely take next, if it has been read.
  std::shared_ptr<const Batch> NextBatch();
  // The task is to be run again, unless its call has been abandoned.
  void GiveBack(const MicroBatchTask& task);
  // Drops the rest of a call that has failed. False if it had been abandoned before.
  bool AbandonFailed(ComputeCall& call);
  // Hints what the threads will take next: micro-batches, and chunks.
  void ReadAhead();
  void ReadChunksAhead();
  // These two never wait for a lock: threads ask them under the parameter store's.
  bool has_chunks() const { return chunk_count_ > 0; }
  bool is_stopping() const { return is_stopping_; }

 private:
  // Micro-batches leave in this order.
  using Key = std::tuple<Step, ComputeTicket, MicroBatch>;
  std::optional<std::pair<Step, MicroBatch>> Next();

  const uint64_t step_count_;
  const size_t read_ahead_max_;
  BatchSource& batches_;
  ParameterStore& parameters_;

  std::mutex mutex_;  // guards all below, except reads of the two atomics
  std::condition_variable has_task_;
  std::map<Key, MicroBatchTask> micro_batches_;
  std::deque<ChunkTask> chunks_;
  Step guessed_step_;                      // the next step, most likely with the same share again:
  std::vector<MicroBatch> guessed_share_;  // the micro-batches of the last call
  std::vector<std::weak_ptr<ComputeCall>> running_;  // every call that may still be at work
  std::atomic<size_t> chunk_count_ = 0;              // == chunks_.size()
  std::atomic<bool> is_stopping_ = false;
};

}  // namespace pando
