#include "net/host_names.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/mailbox.h"

namespace pando {

struct HostNames::Found {
  Mailbox<std::pair<std::string, Result<std::string>>> mailbox;  // endpoint, address
};

HostNames::HostNames(LookUp look_up, std::function<void(const std::string& text)> on_failure)
    : look_up_(std::move(look_up)),
      on_failure_(std::move(on_failure)),
      found_(std::make_shared<Found>()) {}

HostNames::~HostNames() = default;

int HostNames::fd() const { return found_->mailbox.fd(); }

void HostNames::Ask(Micros now, const Endpoint& peer) {
  const std::string name = peer.ToString();
  Host& host = hosts_[name];
  if (host.is_pending || now < host.ask_at) return;
  host.is_pending = true;
  host.ask_at = now + host.interval;
  host.interval = std::min(2 * host.interval, kIntervalMax);
  std::thread([name, peer, look_up = look_up_, found = found_] {
    std::ignore = found->mailbox.Push({name, look_up(peer)});
  }).detach();
}

void HostNames::WaitFor(const Endpoint& peer, Micros deadline) {
  const std::string name = peer.ToString();
  while (hosts_[name].is_pending) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyNow());
    pollfd polled{fd(), POLLIN, 0};
    if (left.count() <= 0 || poll(&polled, 1, static_cast<int>(left.count())) == 0) return;
    Take();
  }
}

void HostNames::Take() {
  for (auto& [name, address] : found_->mailbox.Drain()) {
    Host& host = hosts_[name];
    host.is_pending = false;
    const bool had_failed = std::exchange(host.has_failed, !address.ok());
    if (!address.ok() && !had_failed && on_failure_) on_failure_(address.status().message());
    if (!address.ok() || host.address == *address) continue;
    host.address = *std::move(address);
    host.interval = kInterval;
  }
}

std::string HostNames::Find(const Endpoint& peer) const {
  const auto it = hosts_.find(peer.ToString());
  return it == hosts_.end() ? "" : it->second.address;
}

}  // namespace pando
