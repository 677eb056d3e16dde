// Trainer is a worker's computing side: T threads that compute micro-batches side by side, and
// slices of the test set between them. The session (or the serial trainer) drives it through
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

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "common/float_buffer.h"
#include "common/timeline.h"
#include "data/batch_source.h"
#include "data/dataset.h"
#include "models/network.h"
#include "plan/job_plan.h"
#include "train/compute_call.h"
#include "train/compute_port.h"
#include "train/compute_thread.h"
#include "train/error_feedback.h"
#include "train/evaluations.h"
#include "train/parameter_store.h"
#include "train/task_queue.h"

namespace pando {

class Trainer : public ComputePort {
 public:
  using Sink = ComputeSink;
  struct Parts {  // all outlive the trainer
    const JobPlan& plan;
    const Model& model;
    const DataSet& data;
    Device device = {};
    Timeline* timeline = nullptr;       // null: none is kept
    TimelineTrack* protocol = nullptr;  // of the protocol thread
    BufferSource buffers = {};          // of gradients that travel from this machine's memory
  };
  // REQUIRES: with a GPU one thread, and no other user of the GPU meanwhile.
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

  // Whether the session may see this event. Events are asked in the order in which they were sunk.
  bool IsCurrent(ComputeTicket ticket, const ComputeEvent& event);

  // How long the threads together take for a micro-batch: the recent mean time of one thread,
  // divided by their number. 0 before the first. Any thread.
  uint64_t micro_batch_us() const;
  // How long the threads together have waited for samples so far. Any thread.
  uint64_t data_stall_us() const;
  // How long a thread has waited for parameters so far, on average: synchronisation that is not
  // hidden behind computing. Any thread.
  uint64_t exposed_sync_us() const;

  // The most bytes of parameters held at a time so far, evaluation's included. Any thread.
  uint64_t parameter_bytes_peak() const { return held_bytes_.peak(); }

  // For the serial trainer, which makes new parameters in place.
  ParameterStore& parameters() { return parameters_; }
  // Flat vectors that gradients have needed so far: the high-water mark of section 12 (I6).
  size_t gradient_buffers_made() const { return gradients_.made_count(); }

 private:
  TimelineSpan PullSpan(ShardId shard, Version version) const;

  const Parts parts_;
  const Sink sink_;
  TimelineNameId pull_;  // of spans on the protocol thread's track
  BatchSource batches_;
  HeldBytes held_bytes_;
  ParameterStore parameters_;
  BufferPool gradients_;
  BufferPool host_gradients_;
  BufferPool encoded_gradients_;
  ErrorFeedback feedback_;
  MicroBatchTime time_;
  ComputeTickets tickets_;
  TaskQueue queue_;
  Evaluations evaluations_;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace pando
