#include "net/connection_watch.h"

#include <utility>

namespace pando {

Status ConnectionWatch::Start(ZmqContext& context, ZmqSocket& router, LineSecurity::Kind security) {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<ZmqMonitor> monitor, ZmqMonitor::Create(context, router));
  handshakes_ = std::make_unique<HandshakeWatch>(std::move(monitor), security);
  return Status();
}

void ConnectionWatch::Note(int connection_fd, Incarnation peer) {
  if (!options_.on_disconnect) return;
  const auto [it, is_new] = connections_.emplace(connection_fd, peer);
  if (is_new || it->second == peer) return;
  Look();  // reports the end of the previous connection with this descriptor
  connections_[connection_fd] = peer;
}

void ConnectionWatch::Look() {
  waits_ = 0;
  for (const HandshakeWatch::News& news : handshakes_->TakeNews()) {
    if (const auto gone = connections_.extract(news.ended_fd); !gone.empty())
      options_.on_disconnect(gone.mapped());
    if (!news.warning.empty() && options_.on_warning) options_.on_warning(news.warning);
  }
}

}  // namespace pando
