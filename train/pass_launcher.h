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
#include <optional>
#include <vector>

#include "common/batch.h"
#include "common/buffer_pool.h"
#include "models/network.h"
#include "plan/job_plan.h"
#include "train/pass_parameters.h"
#include "train/step_timeline.h"
#include "train/tree_sum.h"

namespace pando {

// Results of a pass that have come to the host from a GPU. The score comes before all sums. The
// sums are encoded if the device encodes them (train/gpu/device_codec).
struct PassResults {
  std::optional<BatchScore> score;
  std::vector<CompleteSum> sums;
  bool is_empty() const { return !score && sums.empty(); }
};

// The calls of a pass come in this order: Forward; Score; BringHome for each sum that the metric
// shards complete; for each part TakeResults(kNo), Backward, and BringHome for each sum that it
// completes; TakeResults(kYes); End. After a failure End comes next. TakeResults is called until it
// returns nothing. Threads: as Device.
class PassLauncher {
 public:
  enum class Wait : uint8_t { kNo, kYes };
  virtual ~PassLauncher() = default;

  // Brings the samples in and runs forward, each layer as soon as its parameters are here.
  virtual Status Forward(const std::shared_ptr<const Batch>& batch, MicroBatchName name,
                         PassParameters& parameters) = 0;
  // Writes loss and correct count to `metrics`, in the device's memory. Returns the batch's score
  // if the host has it; otherwise TakeResults returns it later.
  virtual std::optional<BatchScore> Score(float* metrics) = 0;
  // Runs backward through one part and writes the gradients of its layers.
  virtual Status Backward(const BackwardPart& part, PassParameters& parameters,
                          float* gradients) = 0;
  // Brings a sum from the device's memory to the host. It is final once everything launched so far
  // is done. Returns it if the host has it; otherwise TakeResults returns it later.
  virtual std::optional<CompleteSum> BringHome(CompleteSum sum) = 0;
  // Takes the results that have come to the host, in the order in which they were made. kYes: the
  // whole pass is launched; waits for results, and returns none once all were taken.
  // kInterrupted: the work was abandoned meanwhile.
  virtual Result<PassResults> TakeResults(Wait wait, const PassParameters& parameters) = 0;
  // Ends the pass. Results that were not taken are dropped. Nothing reads the parameters or the
  // batch afterwards.
  virtual void End() = 0;
};

// The batch that is most likely wanted next, if it has been read. With a GPU its samples are
// brought in while the pass before it computes.
using NextBatch = std::function<std::shared_ptr<const Batch>()>;

// All references outlive the launcher.
struct LauncherParts {
  Network& network;
  Device device;
  const JobPlan& plan;
  BufferPool& host_sums;  // pinned vectors: flat, or of all encoded shards; used with a GPU
  StepTimeline& timeline;
  bool sums_stay;   // TakeResults returns them in the GPU's memory
  bool is_layered;  // parameters come and go layer by layer
  NextBatch next_batch;
};
// A launcher for a GPU (train/gpu/gpu_launchers.cc).
std::unique_ptr<PassLauncher> MakeGpuLauncher(const LauncherParts& parts);

}  // namespace pando
