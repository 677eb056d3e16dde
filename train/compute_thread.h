// ComputeThread is one computing thread of the trainer: it takes tasks from the queue, runs them on
// its own network and reports what comes of them. Made and run by the trainer, whose TrainerState
// all its threads share.
// Threads: its own. Owns: a network with its activation memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "common/float_buffer.h"
#include "common/timeline.h"
#include "data/batch_source.h"
#include "data/dataset.h"
#include "models/network.h"
#include "plan/job_plan.h"
#include "train/compute_call.h"
#include "train/error_feedback.h"
#include "train/evaluation_pass.h"
#include "train/micro_batch_pass.h"
#include "train/parameter_store.h"
#include "train/task_queue.h"

namespace pando {

// How long one thread takes for a micro-batch: an average that forgets. Threads: any.
class MicroBatchTime {
 public:
  // Two threads at once may lose one of the two times, which does no harm to an average.
  void Add(std::chrono::nanoseconds time);
  int64_t average_ns() const { return average_ns_; }  // 0 before the first

 private:
  std::atomic<int64_t> average_ns_ = 0;
};

struct TrainerParts {  // all outlive the trainer
  const JobPlan& plan;
  const Model& model;
  const DataSet& data;
  Device device = {};
  Timeline* timeline = nullptr;       // null: none is kept
  TimelineTrack* protocol = nullptr;  // of the protocol thread
  BufferSource buffers = {};          // of gradients that travel from this machine's memory
};

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
};

class ComputeThread {
 public:
  // Both on the thread itself. `index`: of the thread.
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

}  // namespace pando
