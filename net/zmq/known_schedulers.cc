#include "net/zmq/known_schedulers.h"

#include <algorithm>

#include "proto/message_limits.h"

namespace pando {
namespace {

bool Has(const std::vector<std::string>& endpoints, const std::string& endpoint) {
  return std::ranges::find(endpoints, endpoint) != endpoints.end();
}

}  // namespace

void KnownSchedulers::Learn(const std::vector<std::string>& endpoints) {
  const std::lock_guard lock(mutex_);
  for (const std::string& endpoint : endpoints) {
    if (Has(endpoints_, endpoint)) continue;
    if (endpoints_.size() == kSchedulersMax) {
      const auto oldest = std::ranges::find_if_not(
          endpoints_, [&](const std::string& known) { return Has(endpoints, known); });
      if (oldest == endpoints_.end()) return;
      endpoints_.erase(oldest);
    }
    endpoints_.push_back(endpoint);
    ++version_;
  }
}

}  // namespace pando
