// UpdateThreads makes a serial run's updates beside the thread that launches a GPU's kernels: the
// GPU would wait, for about 50 ms a step of ResNet-50. Used by the serial trainer.
// Threads: Push any. Owns: its threads; each has its shards, as the lanes of a server have.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "common/mailbox.h"
#include "train/compute_port.h"

namespace pando {

// How many threads sum and update on this machine. They are bound by memory, not by arithmetic.
uint32_t UpdateThreadCount();

class UpdateThreads {
 public:
  using Update = std::function<void(const GradientReady&)>;
  UpdateThreads(uint32_t thread_count, Update update);
  ~UpdateThreads();  // runs the updates that wait

  // Runs `update` on the shard's thread, after all that was pushed for this shard. The caller
  // bounds what waits: no gradient of a step exists before all updates of the step before it.
  void Push(const GradientReady& gradient);

 private:
  void Run(Mailbox<GradientReady>& queue);

  const Update update_;
  std::deque<Mailbox<GradientReady>> queues_;  // by thread
  std::vector<std::thread> threads_;           // last: they use all of the above
};

}  // namespace pando
