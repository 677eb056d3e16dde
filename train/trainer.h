// Trainer is a worker's computing side. Each of its T threads computes whole micro-batches, and the
// threads share each slice of the test set. The session (or the serial trainer) drives it through
// ComputePort. Its results go to a sink, which the worker process connects to the protocol thread's
// mailbox.
//
//   ComputeTickets   which events the session may still see        protocol thread
//   Evaluations      slices of the test set and their parameters   protocol thread
//   TaskQueue        what the threads take next                    both
//   ComputeThread    runs tasks on its own network                  each its own thread
//
// Threads: ComputePort's functions and IsCurrent on one thread, the protocol thread; the sink is
// called on computing threads. Owns: its threads, their networks, parameters and gradients.
// Invariants: I5 (no thread count, order or interruption changes a bit of what is emitted).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "common/buffer_pool.h"
#include "common/result.h"
#include "common/timeline/timeline.h"
#include "data/batch_source.h"
#include "data/dataset.h"
#include "models/network.h"
#include "plan/job_plan.h"
#include "train/compute_port.h"
#include "train/error_feedback.h"
#include "train/evaluation_pass.h"
#include "train/micro_batch_pass.h"
#include "train/micro_batch_time.h"
#include "train/parameter_store.h"
#include "train/task_queue.h"

namespace pando {

struct TrainerParts {  // all outlive the trainer
  const JobPlan& plan;
  const Model& model;
  const DataSet& data;
  Device device = {};
  Timeline* timeline = nullptr;       // null: none is kept
  TimelineTrack* protocol = nullptr;  // of the protocol thread
  BufferSource buffers = {};          // of gradients that travel from this machine's memory
  bool sums_stay = false;             // a GPU's emitted sums stay in its memory
};

// The state that all of the trainer's threads share.
struct TrainerState {
  TrainerState(const TrainerParts& parts_in, uint32_t thread_count, ComputeSink sink_in,
               ParameterResidency residency);

  const TrainerParts parts;
  const ComputeSink sink;
  BatchSource batches;
  HeldBytes held_bytes;
  ParameterStore parameters;
  ParameterStore evaluation_parameters;
  BufferPool gradients;
  BufferPool host_gradients;
  BufferPool encoded_gradients;
  ErrorFeedback feedback;
  MicroBatchTime time;
  TaskQueue queue;
  std::atomic<uint64_t> gpu_free_bytes = 0;
};

// One computing thread of the trainer. It takes tasks from the queue, runs them on its own network
// and emits their results.
// Threads: its own. Owns: a network with its activation memory.
class ComputeThread {
 public:
  // Call both on the thread itself. `index`: the thread's number.
  ComputeThread(TrainerState& trainer, uint32_t index);
  void Run();  // until the queue stops

 private:
  void RunTask(MicroBatchTask& task);
  void RunTask(ChunkTask& task);
  void Finish(MicroBatchTask& task, Status status);
  void GiveBack(const MicroBatchTask& task);
  Result<ChunkScore> Score(const SliceEvaluation& evaluation, const Batch& batch);

  TrainerState& trainer_;
  StepTimeline timeline_;
  Network network_;
  MicroBatchPass pass_;
  EvaluationPass evaluation_pass_;
};

// Evaluations starts the evaluation of test slices once their parameters are here. Used by the
// trainer; its threads compute the chunks.
// Threads: the protocol thread.
class Evaluations {
 public:
  // All references outlive it. `parameters`: the store of those that are evaluated.
  Evaluations(ParameterStore& parameters, const ComputeTickets& tickets, TaskQueue& queue,
              const ComputeSink& sink)
      : parameters_(parameters), tickets_(tickets), queue_(queue), sink_(sink) {}

  // These three as in ComputePort.
  void EvaluateSlice(const Evaluate& request);
  void ParametersArrived(ShardId shard, Version version, const Blob& payload);
  void ParametersGone(Version version);
  // Drops everything, including slices that threads compute now.
  void Forget();

 private:
  void StartWhole();
  void Start(const Evaluate& request);

  ParameterStore& parameters_;
  const ComputeTickets& tickets_;
  TaskQueue& queue_;
  const ComputeSink& sink_;
  std::vector<Evaluate> unstarted_;  // of one version
  std::vector<std::weak_ptr<SliceEvaluation>> running_;
  uint64_t started_count_ = 0;
};

class Trainer : public WorkerComputer {
 public:
  using Sink = ComputeSink;
  using Parts = TrainerParts;
  // REQUIRES: with a GPU one thread, and no other user of the GPU meanwhile.
  Trainer(const Parts& parts, uint32_t thread_count, Sink sink,
          ParameterResidency residency = ParameterResidency::kAll);
  ~Trainer() override;  // Stop

  void Compute(Step step, std::vector<MicroBatch> micro_batches) override;
  void Abandon(Step from) override;
  void Verify(Step step, MicroBatch micro_batch) override;
  void Forget() override;
  void ParametersArrived(ShardId shard, Version version, const Blob& payload) override;
  void ParametersGone(ParameterUse use, Version version) override;
  void EvaluateSlice(const Evaluate& request) override;
  void EvaluationParametersArrived(ShardId shard, Version version, const Blob& payload) override;

  bool IsCurrent(ComputeTicket ticket, const ComputeEvent& event) override;

  // How long the threads together take for a micro-batch: the recent mean time of one thread,
  // divided by their number. 0 before the first. Any thread.
  uint64_t micro_batch_us() const;
  // How long the threads together have waited for samples so far. Any thread.
  uint64_t data_stall_us() const;
  // How long a computing thread has been waiting for samples now; 0: none waits.
  uint64_t samples_wait_ms() const;
  // How long a thread has waited for parameters so far, on average: synchronisation that is not
  // hidden behind computing. Any thread.
  uint64_t exposed_sync_us() const;

  uint64_t parameter_bytes_peak() const override { return state_.held_bytes.peak(); }

  void Stop() override;
  // The GPU's free memory when its thread stopped, before the thread freed its own; 0 on a CPU.
  uint64_t gpu_free_bytes() const { return state_.gpu_free_bytes; }

  // For the serial trainer, which makes new parameters in place.
  ParameterStore& parameters() { return state_.parameters; }
  // The most flat vectors that gradients have needed (I6; docs/protocol.md, section 12).
  size_t gradient_buffers_made() const { return state_.gradients.made_count(); }

 private:
  TimelineTrack::Span PullSpan(ShardId shard, Version version) const;

  TrainerState state_;
  TimelineNameId pull_;  // of spans on the protocol thread's track
  ComputeTickets tickets_;
  Evaluations evaluations_;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace pando
