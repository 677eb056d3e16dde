// BatchUpload brings the samples of the next micro-batch to a GPU while the one before computes.
// Its copy waits for one kernel alone, the one that has read the samples before them, so two
// buffers do: the one that was read into, in pinned memory, and one on the GPU. Used by GpuTraffic.
// Threads: as Device. Owns: a copy stream, and memory of the GPU for one batch.
#pragma once

#include <memory>

#include "common/batch.h"
#include "kernels/copy_queue.h"
#include "kernels/device.h"
#include "models/network.h"

namespace pando {

class BatchUpload {
 public:
  explicit BatchUpload(Device device) : device_(device), copies_(device) {}

  // Begins to bring it in the place of what was brought before, unless that is this one. Waits
  // where the former one is on its way still.  REQUIRES: it is pinned (PinBatch).
  void Bring(const std::shared_ptr<const Batch>& batch);
  // Brings it, if it has not been, and gives it to the network.
  void SetIn(Network& network, const std::shared_ptr<const Batch>& batch, MicroBatchName name);

 private:
  const Device device_;
  DeviceMemory memory_;
  std::shared_ptr<const Batch> batch_;  // what memory_ holds, once it has arrived
  CopyQueue copies_;                    // ends first: it waits
  CopyQueue::Ticket on_its_way_ = 0;
};

}  // namespace pando
