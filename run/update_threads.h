// UpdateThreads runs a serial run's updates beside the thread that launches a GPU's kernels.
// Otherwise the GPU would wait, for about 50 ms per step of ResNet-50. The serial trainer uses it.
// Threads: any may Push. Owns: its threads; each has its own shards, as the lanes of a server do.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "common/mailbox.h"
#include "train/compute_port.h"

namespace pando {

// Returns the number of threads that sum and update here. Memory bounds them, not arithmetic.
uint32_t UpdateThreadCount();

class UpdateThreads {
 public:
  using Update = std::function<void(const GradientReady&)>;
  UpdateThreads(uint32_t thread_count, Update update);
  ~UpdateThreads();  // runs the waiting updates

  // Runs `update` on the shard's thread, after all earlier pushes for this shard. The caller bounds
  // the queue: no gradient of a step exists before all updates of the previous step.
  void Push(const GradientReady& gradient);

 private:
  void Run(Mailbox<GradientReady>& queue);

  const Update update_;
  std::deque<Mailbox<GradientReady>> queues_;  // by thread
  std::vector<std::thread> threads_;           // last: they use all members above
};

}  // namespace pando
