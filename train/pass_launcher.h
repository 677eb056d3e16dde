// PassLauncher runs one micro-batch's layers on a device. MicroBatchPass decides the order; the
// launcher decides how a layer gets to the device and how results get back. There are three:
//
//   HostLauncher      the CPU: each call computes before it returns (micro_batch_pass.cc)
//   GpuLauncher       a GPU, layer by layer: calls return when the work is launched
//   RecordedLauncher  a GPU and a small network: launches are recorded once (LaunchGraph) and then
//                     repeated, since launching short kernels one by one takes longer than running
//                     them
#pragma once

#include <functional>
#include <memory>

#include "common/batch.h"
#include "common/buffer_pool.h"
#include "models/network.h"
#include "plan/job_plan.h"
#include "train/pass_parameters.h"
#include "train/step_timeline.h"
#include "train/tree_sum.h"

namespace pando {

// Takes a pass's results: sums in the host's memory, encoded if the device encodes them
// (train/gpu/device_codec), or final ones in the GPU's. MicroBatchPass implements it.
class PassResults : public GradientSink {
 public:
  // The score of the batch, before any sum of gradients. A failure ends the pass.
  virtual Status OnScore(const BatchScore& score) = 0;
};

// Calls come in this order: Forward, Score, then Backward for each part with OnGradient between
// them, Finish. After a failure Finish comes next. OnGradient takes sums in the device's memory,
// which are final once everything launched so far is done, and brings them to PassResults.
// Threads: as Device.
class PassLauncher : public GradientSink {
 public:
  // Brings the samples in and runs forward, each layer as soon as its parameters are here.
  virtual Status Forward(const std::shared_ptr<const Batch>& batch, MicroBatchName name,
                         PassParameters& parameters) = 0;
  // Writes loss and correct count to `metrics`, in the device's memory, and reports the score.
  virtual Status Score(float* metrics) = 0;
  // Runs backward through one part and writes the gradients of its layers.
  virtual Status Backward(const BackwardPart& part, PassParameters& parameters,
                          float* gradients) = 0;
  // Ends the pass, whose outcome so far is `computed`. If it is ok, reports the remaining results.
  // Returns the outcome. Nothing reads the parameters or the batch afterwards.
  virtual Status Finish(const PassParameters& parameters, Status computed) = 0;
};

// All outlive the launcher.
struct LauncherParts {
  Network& network;
  Device device;
  const JobPlan& plan;
  BufferPool& host_sums;  // pinned vectors: flat, or of all encoded shards; used with a GPU
  StepTimeline& timeline;
  PassResults& results;
  bool sums_stay = false;  // they are handed back in the GPU's memory
};
// The batch that is most likely wanted next, if it has been read. With a GPU its samples are
// brought in while the pass before it computes.
using NextBatch = std::function<std::shared_ptr<const Batch>()>;

// For a GPU (train/gpu/gpu_launchers.cc). `is_layered`: parameters come and go layer by layer.
std::unique_ptr<PassLauncher> MakeGpuLauncher(const LauncherParts& parts, bool is_layered,
                                              NextBatch next_batch);

}  // namespace pando
