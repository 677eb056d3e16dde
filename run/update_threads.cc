#include "run/update_threads.h"

#include <algorithm>
#include <utility>

#include "common/cgroup.h"
#include "common/check.h"
#include "common/system.h"

namespace pando {

uint32_t UpdateThreadCount() {
  constexpr uint32_t kCoresPerThread = 4, kThreadsMax = 8;
  return std::clamp(UsableCores() / kCoresPerThread, 1u, kThreadsMax);
}

UpdateThreads::UpdateThreads(uint32_t thread_count, Update update)
    : update_(std::move(update)), queues_(thread_count) {
  for (Mailbox<GradientReady>& queue : queues_) threads_.emplace_back([&] { Run(queue); });
}

UpdateThreads::~UpdateThreads() {
  for (Mailbox<GradientReady>& queue : queues_) queue.Close();
  for (std::thread& thread : threads_) thread.join();
}

void UpdateThreads::Push(const GradientReady& gradient) {
  PANDO_CHECK(queues_[gradient.shard.value() % queues_.size()].Push(gradient));
}

void UpdateThreads::Run(Mailbox<GradientReady>& queue) {
  SetFloatEnvironment();
  while (const std::optional<GradientReady> gradient = queue.Pop()) update_(*gradient);
}

}  // namespace pando
