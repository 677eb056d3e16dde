// Trainer is a worker's computing side: T threads that compute micro-batches side by side, and
// slices of the test set between them. Driven through ComputePort by the session (or the serial
// trainer); what it makes goes to a sink, which the worker process joins to the protocol thread's
// mailbox. Threads: ComputePort's functions and IsCurrent on one thread, the protocol thread; the
// sink is called on computing threads. Owns: its threads, their networks, parameters and gradients.
// Invariants: I5 (no thread count, order or interruption changes a bit of what is emitted).
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
#include <thread>
#include <tuple>
#include <vector>

#include "common/float_buffer.h"
#include "common/job_plan.h"
#include "models/network.h"
#include "worker/batch_source.h"
#include "worker/compute_port.h"
#include "worker/dataset.h"
#include "worker/evaluate_chunk.h"
#include "worker/parameter_store.h"
#include "worker/step_timeline.h"
#include "worker/train_step.h"
#include "worker/tree_sum.h"

namespace pando {

// Names one Compute call. Its events carry it, so that those still in a mailbox when the call is
// abandoned are known as stale.
using ComputeTicket = StrongId<struct ComputeTicketTag, uint64_t>;

class Trainer : public ComputePort {
 public:
  using Sink = std::function<void(ComputeTicket ticket, ComputeEvent event)>;
  struct Parts {  // all outlive the trainer
    const JobPlan& plan;
    const Model& model;
    const DataSet& data;
    Device device = {};
    Timeline* timeline = nullptr;       // null: none is kept
    TimelineTrack* protocol = nullptr;  // of the protocol thread
    BufferSource buffers = {};          // of gradients that travel from this machine's memory
  };
  // REQUIRES: with a GPU one thread; nobody else uses it meanwhile.
  Trainer(const Parts& parts, uint32_t thread_count, Sink sink,
          ParameterResidency residency = ParameterResidency::kAll);
  ~Trainer() override;  // stops at once: threads waiting for parameters or work return

  void Compute(Step step, std::vector<MicroBatch> micro_batches) override;
  void Abandon(Step from) override;
  void Verify(Step step, MicroBatch micro_batch) override;
  void Forget() override;
  void ParametersArrived(ShardId shard, Version version, const Blob& payload) override;
  void ParametersGone(ParameterUse use, Version version) override;
  void EvaluateSlice(const Evaluate& request) override;
  void EvaluationParametersArrived(ShardId shard, Version version, const Blob& payload) override;

  // Whether the session may see this event; events come in the order in which they were sunk.
  bool IsCurrent(ComputeTicket ticket, const ComputeEvent& event);

  // What a micro-batch takes the threads together, of late: the mean time of one, divided by their
  // number. 0 before the first. Any thread.
  uint64_t micro_batch_us() const;
  // How long the threads together have waited for samples so far. Any thread.
  uint64_t data_stall_us() const;
  // How long a thread has waited for parameters so far, on average: synchronisation that nothing
  // hides. Any thread.
  uint64_t exposed_sync_us() const;

  // The most bytes of parameters held at a time so far, evaluation's included. Any thread.
  uint64_t parameter_bytes_peak() const { return held_bytes_.peak(); }

  // For the serial trainer, which makes new parameters in place.
  ParameterStore& parameters() { return parameters_; }
  // Flat vectors that gradients have needed so far: the high-water mark of section 12 (I6).
  size_t gradient_buffers_made() const { return gradients_.made_count(); }

 private:
  struct ComputeCall {  // shared by the queue's entries and the threads at work on them
    ComputeCall(ComputeTicket ticket_in, ComputeTicket hash_ticket_in, Step step_in)
        : ticket(ticket_in), hash_ticket(hash_ticket_in), step(step_in) {}
    const ComputeTicket ticket;
    const ComputeTicket hash_ticket;  // of what outlives Abandon
    const Step step;
    std::optional<TreeSum> sum;  // none: a verification (P41)
    std::atomic<bool> abandoned = false;
    std::atomic<size_t> unfinished_count = 0;  // micro-batches
  };
  struct Evaluation {  // of one slice; shared likewise
    ComputeTicket ticket;
    uint64_t number = 0;  // in the order of their beginnings
    Evaluate request;
    std::shared_ptr<const FloatBuffer> parameters;  // null: layer by layer
    std::vector<ChunkScore> scores;                 // by chunk, each written by one thread
    std::atomic<size_t> unfinished_count;           // chunks
    std::atomic<bool> abandoned = false;            // its parameters are gone
  };
  // Micro-batches go in the order of steps, then of calls, then of their index.
  using MicroBatchKey = std::tuple<Step, ComputeTicket, MicroBatch>;
  struct MicroBatchTask {
    std::shared_ptr<ComputeCall> call;
    MicroBatch micro_batch;
  };
  struct ChunkTask {
    std::shared_ptr<Evaluation> evaluation;
    size_t chunk = 0;
  };
  using Task = std::variant<MicroBatchTask, ChunkTask>;

  ComputeTicket NextTicket();
  void Enqueue(const std::shared_ptr<ComputeCall>& call,
               const std::vector<MicroBatch>& micro_batches);
  void ReadAhead();
  template <class Wanted>
  void DropCalls(const Wanted& is_dropped);
  TimelineSpan PullSpan(ShardId shard, Version version) const;
  void ThreadMain(uint32_t index);
  std::optional<Task> NextTask();  // blocks; none when stopping
  // That a thread will most likely take next.
  std::optional<TrainStep::MicroBatchOfStep> NextMicroBatch();
  void RunTask(TrainStep& train_step, StepTimeline& timeline, MicroBatchTask& task);
  void RunTask(TrainStep& train_step, StepTimeline& timeline, ChunkTask& task);
  Result<ChunkScore> Score(TrainStep& train_step, const Evaluation& evaluation, const Batch& batch);
  void GiveBack(const MicroBatchTask& task);
  void TakeTime(std::chrono::nanoseconds time);
  void AbandonCall(ComputeCall& call, Status failure);
  void FinishEvaluation(const Evaluation& evaluation);
  void StartWholeEvaluations();
  void StartEvaluation(const Evaluate& request);
  void ExpectChunks();

  const Parts parts_;
  const Sink sink_;
  const SampleCounts samples_;  // of a network
  TimelineNameId pull_;         // of spans on the protocol thread's track
  BatchSource batches_;
  HeldBytes held_bytes_;
  ParameterStore parameters_;
  ParameterStore evaluation_parameters_;
  BufferPool gradients_;
  BufferPool host_gradients_;
  BufferPool encoded_gradients_;
  ErrorFeedback feedback_;

  // Of the protocol thread.
  ComputeTicket last_ticket_;
  std::map<ComputeTicket, Step> current_calls_;
  ComputeTicket lasting_ticket_;                 // of evaluation and hashes until we forget
  std::vector<Evaluate> unstarted_evaluations_;  // of one version
  std::vector<std::weak_ptr<Evaluation>> evaluations_;
  uint64_t evaluation_count_ = 0;

  std::mutex mutex_;  // guards the queues and running_
  std::condition_variable has_task_;
  std::map<MicroBatchKey, MicroBatchTask> micro_batches_;
  std::deque<ChunkTask> chunks_;
  Step guessed_step_;                                // the next one, most likely with these again:
  std::vector<MicroBatch> guessed_share_;            // what Compute had last
  std::vector<std::weak_ptr<ComputeCall>> running_;  // every call that may still be at work
  // Read by waiting threads under the parameter store's lock, hence atomic.
  std::atomic<size_t> chunk_count_ = 0;  // == chunks_.size()
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> micro_batch_ns_ = 0;  // of one thread, an average that forgets
  std::vector<std::thread> threads_;
};

}  // namespace pando
