// For threads that do something at intervals until they are stopped.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>

#include "common/clock.h"

namespace pando {

// Waits until `time` has passed or a stop is requested. Returns whether the thread goes on.
inline bool WaitUnlessStopped(const std::stop_token& stop, Micros time) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any never;
  never.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace pando
