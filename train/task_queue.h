// TaskQueue holds the work that computing threads take next: micro-batches of calls, and chunks of
// evaluations. QueuedComputer fills it. The trainer's threads empty it, or those of a program.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
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

#include "common/float_buffer.h"
#include "common/ids.h"
#include "train/compute_port.h"
#include "train/evaluation_pass.h"
#include "train/parameter_store.h"
#include "train/tree_sum.h"

namespace pando {

// One Compute or Verify of the session.
struct ComputeCall {
  const ComputeTicket ticket;
  const ComputeTicket lasting_ticket;  // for events that outlive Abandon
  const Step step;
  const Version version;                     // that the step reads
  std::optional<TreeSum> sum = {};           // none: a verification (P41)
  std::atomic<bool> is_abandoned = false;    // its sum is not needed any more
  std::atomic<bool> is_forgotten = false;    // it belongs to an earlier generation
  std::atomic<size_t> unfinished_count = 0;  // micro-batches
  // By micro-batch, the shards that are in the sum. A program may drop a micro-batch half-way and
  // compute it again. Guarded by WorkResults.
  std::map<MicroBatch, std::vector<bool>> added = {};

  // Whether a micro-batch is not computed any further. Shards that were sent may be part of the
  // update, so a hashed micro-batch is computed to its end (P41).
  bool IsDropped(bool is_partly_out, bool is_hashed) const {
    return is_abandoned && (is_forgotten || !(is_partly_out && is_hashed));
  }
};

// One EvaluateSlice of the session, of which threads take chunks.
struct SliceEvaluation {
  ComputeTicket ticket;
  uint64_t number = 0;  // in the order of their starts
  Evaluate request;
  uint64_t chunk_samples_max = kEvaluationChunkSamples;
  std::shared_ptr<const FloatBuffer> parameters;  // null: readers hold the version
  std::vector<ChunkScore> scores;                 // by chunk, each written by one thread
  std::atomic<size_t> unfinished_count = 0;       // chunks
  std::atomic<bool> is_abandoned = false;         // its result is not needed any more

  // Test samples [first, last) of a chunk.
  std::pair<uint64_t, uint64_t> SamplesOfChunk(size_t chunk) const {
    const uint64_t first = request.first_sample + chunk * chunk_samples_max;
    return {first, std::min(first + chunk_samples_max, request.last_sample)};
  }
};

struct MicroBatchTask {
  std::shared_ptr<ComputeCall> call;
  MicroBatch micro_batch;
};
struct ChunkTask {
  std::shared_ptr<SliceEvaluation> evaluation;
  size_t chunk = 0;
};
using ComputeTask = std::variant<MicroBatchTask, ChunkTask>;

// Threads: any. Owns: the queue. Invariants: micro-batches leave in the order of step, call and
// index; chunks of an evaluation leave before all micro-batches.
class TaskQueue {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  static constexpr Deadline kNoDeadline = Deadline::max();

  // Threads that wait for `parameters` are woken when the queue has news for them. Outlives it.
  explicit TaskQueue(ParameterStore& parameters) : parameters_(parameters) {}

  // ---- protocol thread ----
  void Push(const std::shared_ptr<ComputeCall>& call, const std::vector<MicroBatch>& micro_batches);
  // All chunks of the evaluation.
  void Push(const std::shared_ptr<SliceEvaluation>& evaluation);
  void DropChunks();
  // Drops queued micro-batches of these calls, and marks the calls that are computed.
  void Abandon(const std::function<bool(ComputeCall&)>& is_abandoned);

  // ---- computing threads ----
  // Blocks until there is a task; returns none after Stop or at the deadline.
  std::optional<ComputeTask> Take(Deadline deadline = kNoDeadline);
  // The task is to be run again, unless it has been abandoned.
  void GiveBack(const MicroBatchTask& task);
  void GiveBack(const ChunkTask& task);
  // Drops the rest of a call that has failed. False if it had been abandoned before.
  bool AbandonFailed(ComputeCall& call);

  // ---- any thread ----
  // From now on Take returns at once and without a task.
  void Stop();
  // The micro-batches that Take will most likely return after `first` others, at most `count_max`:
  // queued ones, then those of the next `steps_max` steps, with the last call's share again.
  using StepPart = std::pair<Step, MicroBatch>;
  std::vector<StepPart> Expected(size_t first, size_t count_max, size_t steps_max = SIZE_MAX) const;
  std::vector<ChunkTask> ExpectedChunks(size_t count_max) const;
  // These two never wait for a lock: threads ask them under the parameter store's.
  bool has_chunks() const { return chunk_count_ > 0; }
  bool is_stopping() const { return is_stopping_; }

 private:
  // Micro-batches leave in this order.
  using Key = std::tuple<Step, ComputeTicket, MicroBatch>;

  ParameterStore& parameters_;

  mutable std::mutex mutex_;  // guards all below, except reads of the two atomics
  std::condition_variable has_task_;
  std::map<Key, MicroBatchTask> micro_batches_;
  std::deque<ChunkTask> chunks_;
  Step guessed_step_;                      // the next step, most likely with the same share again:
  std::vector<MicroBatch> guessed_share_;  // the micro-batches of the last step's call
  std::vector<std::weak_ptr<ComputeCall>> running_;  // every call that may still be computed
  std::atomic<size_t> chunk_count_ = 0;              // == chunks_.size()
  std::atomic<bool> is_stopping_ = false;
};

}  // namespace pando
