// KnownSchedulers keeps where the schedulers of a run listen, as the leading one tells each member
// (P47). A process has one, in its ZmqContext; its transports dial these endpoints beside those
// that they were given. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace pando {

class KnownSchedulers {
 public:
  // Adds endpoints ("tcp://HOST:PORT"). Of more than kSchedulersMax, those that were learned first
  // are forgotten, but none of these: their machines are long gone.
  void Learn(const std::vector<std::string>& endpoints);
  std::vector<std::string> endpoints() const {
    const std::lock_guard lock(mutex_);
    return endpoints_;
  }
  // Grows whenever endpoints() changes.
  uint64_t version() const { return version_; }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> endpoints_;  // the oldest first
  std::atomic<uint64_t> version_{0};
};

}  // namespace pando
