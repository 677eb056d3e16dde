// Trainer is a worker's computing side. Each of its T threads computes whole micro-batches, and the
// threads share each slice of the test set. The session (or the serial trainer) drives it through
// ComputePort. Its results go to a sink, which the worker process connects to the protocol thread's
// mailbox.
//
//   QueuedComputer   the work and the parameters          protocol thread, and computing threads
//   ComputeThread    runs tasks on its own network        each its own thread
//
// Threads: as QueuedComputer; the sink is called on computing threads. Owns: its threads, their
// networks, and gradients.
// Invariants: I5 (no thread count, order or interruption changes a bit of what is emitted).
#pragma once

#include <atomic>
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
#include "train/error_feedback.h"
#include "train/evaluation_pass.h"
#include "train/micro_batch_pass.h"
#include "train/micro_batch_time.h"
#include "train/queued_computer.h"

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
  TrainerState(const TrainerParts& parts_in, uint32_t thread_count, QueuedComputer& computer_in);
  // Tells the batch source what the threads will take next.
  void ReadAhead();
  // The batch of the micro-batch that a thread will most likely take next, if it has been read.
  std::shared_ptr<const Batch> NextBatch();

  const TrainerParts parts;
  QueuedComputer& computer;     // whose tasks the threads take
  const size_t read_ahead_max;  // batches
  BatchSource batches;
  BufferPool gradients;
  BufferPool host_gradients;
  BufferPool encoded_gradients;
  ErrorFeedback feedback;
  MicroBatchTime time;
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
  TaskQueue& queue_;
  const ComputeSink& sink_;
  StepTimeline timeline_;
  Network network_;
  MicroBatchPass pass_;
  EvaluationPass evaluation_pass_;
};

class Trainer : public QueuedComputer {
 public:
  using Sink = ComputeSink;
  using Parts = TrainerParts;
  // REQUIRES: with a GPU one thread, and no other user of the GPU meanwhile.
  Trainer(const Parts& parts, uint32_t thread_count, Sink sink,
          ParameterResidency residency = ParameterResidency::kAll);
  ~Trainer() override;  // Stop

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

  // Stops at once: threads that wait for parameters or work return. After it, call only accessors.
  void Stop();
  // The GPU's free memory when its thread stopped, before the thread freed its own; 0 on a CPU.
  uint64_t gpu_free_bytes() const { return state_.gpu_free_bytes; }

  // The most flat vectors that gradients have needed (I6; docs/protocol.md, section 12).
  size_t gradient_buffers_made() const { return state_.gradients.made_count(); }

 private:
  TrainerState state_;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace pando
