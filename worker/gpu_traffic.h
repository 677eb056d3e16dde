// GpuTraffic is what passes between the host and one computing thread's GPU while its kernels run:
// samples and parameters come, sums of gradients and scores leave. What depends on something that
// leaves is done when it has arrived. Used by TrainStep, which launches a whole micro-batch without
// waiting. Threads: as Device. Owns: copy streams, the GPU's copies of samples and parameters, and
// what is on its way.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "common/float_buffer.h"
#include "common/ids.h"
#include "common/status.h"
#include "common/tensor_layout.h"
#include "kernels/copy_queue.h"
#include "kernels/device.h"
#include "models/network.h"
#include "worker/batch_upload.h"
#include "worker/parameter_copy.h"

namespace pando {

class GpuTraffic {
 public:
  // `shards` and `host_gradients`, a pool of pinned flat vectors, outlive it.
  GpuTraffic(Device device, const ShardPlan& shards, BufferPool& host_gradients);

  BatchUpload& batches() { return batches_; }
  ParameterCopy& training_parameters() { return training_; }
  const ParameterCopy& training_parameters() const { return training_; }
  ParameterCopy& evaluation_parameters() { return evaluation_; }

  struct Sum {
    TreeNode node;
    ShardId shard;
    SharedBuffer gradients;  // the GPU's flat vector that holds it
  };
  // What is done with what has arrived; a failure ends the pass.
  using OnScore = std::function<Status(const BatchScore& score)>;
  using OnSum = std::function<void(TreeNode node, ShardId shard, Blob sum)>;
  // What the network has scored, once it has.
  void SendScore(const Network& network, OnScore on_score);
  // Sums that are final once all that has been launched so far is done.
  void SendSums(std::vector<Sum> sums, OnSum on_sum);

  // Does what is due, in the order of sending, without waiting.
  Status Poll();
  // The same to the end, unless `is_dropped()`, which is asked in between: kInterrupted.
  Status Finish(const std::function<bool()>& is_dropped);
  // The pass is over, well or not: waits for parameters and sums on their way and forgets what was
  // to be done.
  void End();

 private:
  struct Arrival {
    CopyQueue::Ticket ticket;
    std::function<Status()> then;
  };
  void Expect(std::function<Status()> then);
  Status TakeFirst();

  const ShardPlan& shards_;
  BufferPool& host_gradients_;
  BatchUpload batches_;
  CopyQueue uploads_;
  CopyQueue downloads_;
  ParameterCopy training_;
  ParameterCopy evaluation_;
  FloatBuffer score_;  // pinned: where the score arrives
  SharedBuffer host_;  // of this pass: where its sums arrive
  std::deque<Arrival> awaited_;
};

}  // namespace pando
