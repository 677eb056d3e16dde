// The work of the trainer's computing threads: calls, which consist of micro-batches, and
// evaluations, which consist of chunks. The threads take them from TaskQueue. Used by the trainer.
#pragma once

#include <algorithm>
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
#include <variant>
#include <vector>

#include "common/float_buffer.h"
#include "common/ids.h"
#include "data/batch_source.h"
#include "train/compute_port.h"
#include "train/evaluation_pass.h"
#include "train/parameter_store.h"
#include "train/tree_sum.h"

namespace pando {

// Decides which of the trainer's events the session may still see. Threads: the protocol thread.
class ComputeTickets {
 public:
  // Returns the ticket of a Compute call. Older calls become stale once their parameters are gone.
  ComputeTicket ForCall(Step step) {
    std::erase_if(calls_, [&](const auto& call) {
      return call.second.value() + kTrainingVersionsKept <= step.value();
    });
    calls_[Next()] = step;
    return last_;
  }
  // Returns the ticket of a call whose events carry lasting() instead.
  ComputeTicket Next() { return last_ = ComputeTicket(last_.value() + 1); }
  // The ticket of the events of evaluations and hashes, which Abandon does not end.
  ComputeTicket lasting() const { return lasting_; }

  // Makes the events of calls of steps ≥ `from` stale.
  void Abandon(Step from) {
    std::erase_if(calls_, [&](const auto& call) { return call.second >= from; });
  }
  // Makes all earlier events stale.
  void Forget() {
    calls_.clear();
    lasting_ = Next();
  }
  // Returns whether the session may see this event. Call it once for each event, in order.
  bool IsCurrent(ComputeTicket ticket, const ComputeEvent& event) {
    if (ticket == lasting_) return true;
    if (std::holds_alternative<StepComputed>(event)) return calls_.erase(ticket) == 1;
    return calls_.contains(ticket);
  }

 private:
  ComputeTicket last_;
  ComputeTicket lasting_;
  std::map<ComputeTicket, Step> calls_;  // current ones
};

struct ComputeCall {
  const ComputeTicket ticket;
  const ComputeTicket lasting_ticket;  // for events that outlive Abandon
  const Step step;
  std::optional<TreeSum> sum = {};  // none: a verification (P41)
  std::atomic<bool> is_abandoned = false;
  std::atomic<size_t> unfinished_count = 0;  // micro-batches
};

struct SliceEvaluation {
  ComputeTicket ticket;
  uint64_t number = 0;  // in the order of their starts
  Evaluate request;
  std::shared_ptr<const FloatBuffer> parameters;  // null: they come layer by layer
  std::vector<ChunkScore> scores;                 // by chunk, each written by one thread
  std::atomic<size_t> unfinished_count = 0;       // chunks
  std::atomic<bool> is_abandoned = false;         // its parameters are gone

  // Test samples [first, last) of a chunk.
  std::pair<uint64_t, uint64_t> SamplesOfChunk(size_t chunk) const {
    const uint64_t first = request.first_sample + chunk * kEvaluationChunkSamples;
    return {first, std::min(first + kEvaluationChunkSamples, request.last_sample)};
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

// TaskQueue holds the work that the trainer's computing threads take next, and tells the batch
// source which samples to read ahead for it. Filled by the protocol thread.
// Threads: any. Owns: the queue. Invariants: micro-batches leave in the order of step, call and
// index; chunks of an evaluation leave before all micro-batches.
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
  // Drops queued micro-batches of these calls; sets `is_abandoned` of the calls that are computed.
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
  // Tell the batch source what the threads will take next: micro-batches, and chunks.
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
  std::vector<std::weak_ptr<ComputeCall>> running_;  // every call that may still be computed
  std::atomic<size_t> chunk_count_ = 0;              // == chunks_.size()
  std::atomic<bool> is_stopping_ = false;
};

}  // namespace pando
