#include "node/service_notice.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <tuple>

namespace pando {
namespace {

// The most time for which a full queue of the manager may stop the loop.
constexpr timeval kSendMax{.tv_sec = 1, .tv_usec = 0};
// Turns that are at most this part of the timeout apart give a sign of life within half of it.
constexpr int kFeedsPerTimeout = 4;

UniqueFd Connect(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.empty() || path.size() >= sizeof address.sun_path) return UniqueFd();
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path[0] == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return UniqueFd();
  std::ignore = setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kSendMax, sizeof kSendMax);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  return connect(fd.get(), generic, size) == 0 ? std::move(fd) : UniqueFd();
}

// A line break would begin another variable.
std::string OneLine(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace

ServiceNotice::ServiceNotice(const ServiceManager& manager) : socket_(Connect(manager.socket)) {
  if (socket_.is_open() && manager.watchdog_timeout > Micros(0))
    feed_interval_ = std::max(manager.watchdog_timeout / kFeedsPerTimeout, Micros(1));
}

void ServiceNotice::SendReady(const std::string& text) {
  Send(fmt::format("READY=1\nSTATUS={}", OneLine(text)));
}

void ServiceNotice::SendStatus(const std::string& text) {
  Send(fmt::format("STATUS={}", OneLine(text)));
}

void ServiceNotice::SendStopping() { Send("STOPPING=1\nSTATUS=leaving"); }

void ServiceNotice::Feed(Micros now) {
  if (feed_interval_ == kNever || now - fed_at_ < feed_interval_) return;
  fed_at_ = now;
  Send("WATCHDOG=1");
}

void ServiceNotice::Send(const std::string& message) const {
  if (!socket_.is_open()) return;
  std::ignore = send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL);
}

}  // namespace pando
