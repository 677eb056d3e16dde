#include "net/connection_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

namespace pando {
namespace {

UniqueFd OpenReserve() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Status ConnectionWatch::Start(ZmqContext& context, ZmqSocket& router) {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<ZmqMonitor> monitor, ZmqMonitor::Create(context, router));
  monitor_ = std::move(monitor);
  reserve_ = OpenReserve();
  return Status();
}

void ConnectionWatch::Stop() {
  monitor_.reset();
  reserve_ = UniqueFd();
  listening_fd_ = -1;
}

void ConnectionWatch::Note(int connection_fd, Incarnation peer) {
  if (!options_.on_disconnect) return;
  const auto [it, is_new] = connections_.emplace(connection_fd, peer);
  if (is_new || it->second == peer) return;
  Look();  // it reports the previous connection with this descriptor
  connections_[connection_fd] = peer;
}

void ConnectionWatch::Look() {
  int accept_error = 0;
  while (const std::optional<ZmqMonitor::Event> event = monitor_->Receive()) {
    if (event->kind == ZmqMonitor::Event::Kind::kListening) {
      listening_fd_ = event->value;
      fcntl(listening_fd_, F_SETFL, O_NONBLOCK);  // ZeroMQ may find no peer here any more
    } else if (event->kind == ZmqMonitor::Event::Kind::kAcceptFailed) {
      accept_error = event->value;
    } else if (const auto connection = connections_.extract(event->value); !connection.empty()) {
      options_.on_disconnect(connection.mapped());
    }
  }
  if (accept_error != 0) TurnAway(accept_error);
}

void ConnectionWatch::TurnAway(int error) {
  constexpr int kTurnedAwayMax = 1024;  // at once: others may dial meanwhile
  reserve_ = UniqueFd();
  for (int i = 0; i < kTurnedAwayMax; ++i) {
    const UniqueFd waiting(accept4(listening_fd_, nullptr, nullptr, SOCK_CLOEXEC));
    if (!waiting.is_open()) break;
  }
  reserve_ = OpenReserve();
  if (std::exchange(has_warned_, true) || !options_.on_warning) return;
  options_.on_warning(fmt::format(
      "no further connection can be accepted: {}; raise the limit of open files (ulimit -n)",
      std::strerror(error)));
}

}  // namespace pando
