#include "net/connection_watch.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <utility>

namespace pando {
namespace {

// Kept free for files and for connections that we dial. A new descriptor is the lowest free one.
constexpr uint64_t kDescriptorsKept = 16;

uint64_t DescriptorsMax() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : UINT64_MAX;
}

}  // namespace

Status ConnectionWatch::Start(ZmqContext& context, ZmqSocket& router) {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<ZmqMonitor> monitor, ZmqMonitor::Create(context, router));
  monitor_ = std::move(monitor);
  return Status();
}

void ConnectionWatch::Note(int connection_fd, Incarnation peer) {
  if (!options_.on_disconnect) return;
  const auto [it, is_new] = connections_.emplace(connection_fd, peer);
  if (is_new || it->second == peer) return;
  Look();  // it reports the previous connection with this descriptor
  connections_[connection_fd] = peer;
}

void ConnectionWatch::Look() {
  while (const std::optional<ZmqMonitor::Event> event = monitor_->Receive()) {
    if (event->is_accepted) {
      OnAccepted(event->connection_fd);
    } else if (const auto gone = connections_.extract(event->connection_fd); !gone.empty()) {
      options_.on_disconnect(gone.mapped());
    }
  }
}

// Should the descriptor be another file by now, this does nothing.
void ConnectionWatch::OnAccepted(int connection_fd) {
  const uint64_t descriptors_max = DescriptorsMax();
  if (static_cast<uint64_t>(connection_fd) + kDescriptorsKept < descriptors_max) return;
  shutdown(connection_fd, SHUT_RDWR);
  if (turned_away_++ > 0 || !options_.on_warning) return;
  options_.on_warning(fmt::format(
      "further connections are turned away: {} files may be open; raise the limit (ulimit -n)",
      descriptors_max));
}

}  // namespace pando
