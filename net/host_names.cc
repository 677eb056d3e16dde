#include "net/host_names.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/mailbox.h"

namespace pando {

struct HostNames::Found {
  Mailbox<std::pair<std::string, Result<std::string>>> mailbox;  // host, address
};

HostNames::HostNames(LookUp look_up, std::function<void(const std::string& text)> on_failure)
    : look_up_(std::move(look_up)),
      on_failure_(std::move(on_failure)),
      found_(std::make_shared<Found>()) {}

HostNames::~HostNames() = default;

int HostNames::fd() const { return found_->mailbox.fd(); }

void HostNames::Ask(Micros now, const std::string& host) {
  Micros& ask_at = ask_at_[host];
  if (pending_.contains(host) || now < ask_at) return;
  Micros& interval = intervals_.try_emplace(host, kInterval).first->second;
  ask_at = now + interval;
  interval = std::min(2 * interval, kIntervalMax);
  pending_.insert(host);
  std::thread([host, look_up = look_up_, found = found_] {
    std::ignore = found->mailbox.Push({host, look_up(host)});
  }).detach();
}

bool HostNames::WaitFor(const std::string& host, Micros deadline) {
  while (pending_.contains(host)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyNow());
    pollfd polled{fd(), POLLIN, 0};
    if (left.count() <= 0 || poll(&polled, 1, static_cast<int>(left.count())) == 0) return false;
    Take();
  }
  return true;
}

void HostNames::Take() {
  for (auto& [host, address] : found_->mailbox.Drain()) {
    pending_.erase(host);
    if (address.ok()) {
      failed_.erase(host);
      if (std::exchange(addresses_[host], *address) != *address) intervals_.erase(host);
    } else if (failed_.insert(host).second && on_failure_) {
      on_failure_(address.status().message());
    }
  }
}

std::string HostNames::Find(const std::string& host) const {
  const auto it = addresses_.find(host);
  return it == addresses_.end() ? "" : it->second;
}

}  // namespace pando
