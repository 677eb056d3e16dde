// What the trainer's protocol thread asks of its computing threads: calls, which are made of
// micro-batches, and evaluations, which are made of chunks. Shared by the queue's entries and the
// threads that work on them.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

// Names one call. Its events carry it, so that the trainer recognises events which are still in a
// mailbox when the call is abandoned.
using ComputeTicket = StrongId<struct ComputeTicketTag, uint64_t>;

// Decides which of the trainer's events the session may still see. Threads: the protocol thread.
class ComputeTickets {
 public:
  // For a Compute call. Older calls become stale once their parameters are gone.
  ComputeTicket ForCall(Step step) {
    std::erase_if(calls_, [&](const auto& call) {
      return call.second.value() + kTrainingVersionsKept <= step.value();
    });
    calls_[Next()] = step;
    return last_;
  }
  // Of a call whose events carry lasting() instead.
  ComputeTicket Next() { return last_ = ComputeTicket(last_.value() + 1); }
  // Of evaluations and hashes, which Abandon does not end.
  ComputeTicket lasting() const { return lasting_; }

  // Events of calls of steps ≥ `from` are stale.
  void Abandon(Step from) {
    std::erase_if(calls_, [&](const auto& call) { return call.second >= from; });
  }
  // All events of before are stale.
  void Forget() {
    calls_.clear();
    lasting_ = Next();
  }
  // Whether the session may see this event. Events are asked in the order in which they came.
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

// Takes events on computing threads.
using ComputeSink = std::function<void(ComputeTicket ticket, ComputeEvent event)>;

struct ComputeCall {
  const ComputeTicket ticket;
  const ComputeTicket lasting_ticket;  // of events that outlive Abandon
  const Step step;
  std::optional<TreeSum> sum = {};  // none: a verification (P41)
  std::atomic<bool> abandoned = false;
  std::atomic<size_t> unfinished_count = 0;  // micro-batches
};

struct SliceEvaluation {
  ComputeTicket ticket;
  uint64_t number = 0;  // in the order of their starts
  Evaluate request;
  std::shared_ptr<const FloatBuffer> parameters;  // null: they come layer by layer
  std::vector<ChunkScore> scores;                 // by chunk, each written by one thread
  std::atomic<size_t> unfinished_count = 0;       // chunks
  std::atomic<bool> abandoned = false;            // its parameters are gone

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

}  // namespace pando
