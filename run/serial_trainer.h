// TrainSerially runs a job in one process without a network: the reference of invariant I5. It
// shares the step, the tree, the optimizer, the schedule and the data code with the distributed
// path. Of the protocol it uses only the records of results. RunSerial and tests call it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/float_buffer.h"
#include "common/result.h"
#include "common/timeline/timeline.h"
#include "data/dataset.h"
#include "kernels/device.h"
#include "models/model.h"
#include "plan/job_plan.h"
#include "proto/messages.h"
#include "scheduler/journal.h"

namespace pando {

struct SerialStep {
  StepMetrics metrics;
  StepScalars scalars;              // the scalars of the step's update
  double training_seconds = 0;      // so far, without the start and evaluations
  double evaluation_seconds = 0;    // so far; no step is computed meanwhile
  double data_stall_seconds = 0;    // all computing threads' waits for samples so far
  double exposed_sync_seconds = 0;  // a thread's average wait for parameters so far
};

// TrainSerially calls these on its caller's thread, in the order of steps. Any may be empty.
struct SerialCallbacks {
  std::function<void(const SerialStep&)> on_step;
  std::function<void(const EvaluationSummary&)> on_evaluation;
  Timeline* timeline = nullptr;  // records the computing threads; null: no timeline
  std::function<bool()>
      interrupted;  // called after every step; true ends the run after the steps in work
};

// The part of the job to train, if it is not the whole job.
struct SerialStretch {
  Version first;                              // the version to begin from
  const FloatBuffer* parameters = nullptr;    // the flat vector of `first`; null: of version 0
  std::span<const SharedBuffer> states = {};  // by shard: optimizer state of `first`
  std::optional<Version> last;                // the version to end with; none: the job's end
  bool is_evaluated = true;
  std::shared_ptr<const FloatBuffer> initial;  // JobPlan::initial
};

struct SerialResult {
  std::shared_ptr<const FloatBuffer> parameters;  // the flat vector of `version`
  std::vector<FloatBuffer> states;                // by shard: optimizer state of `version`
  Version version;
  bool was_interrupted = false;
  SerialStep last_step;  // set if version > 0
  std::optional<EvaluationSummary> last_evaluation;
  std::shared_ptr<const FloatBuffer> best_parameters;  // job.snapshot_best: the best evaluated
  Version best_version;
  double waiting_seconds = 0;   // all computing threads' waits for parameters
  size_t gradient_buffers = 0;  // flat vectors that gradients needed at once
};

// Trains with job.threads computing threads, or with one on a GPU. `model` was made from this job
// and data set. Fails if a loss is not finite or data cannot be read.
Result<SerialResult> TrainSerially(const Job& job, const DataSet& data, const Model& model,
                                   const SerialCallbacks& callbacks,
                                   const SerialStretch& stretch = {}, Device device = {});

// Evaluates given parameters on the test set. Slices, arithmetic and order of sums are those of a
// run, and so is every bit of the result. Runs on the calling thread.
Result<EvaluationSummary> EvaluateSerially(const JobPlan& plan, const DataSet& data,
                                           const Model& model, const FloatBuffer& parameters,
                                           Device device = {});

}  // namespace pando
