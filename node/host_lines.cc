#include "node/host_lines.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

namespace pando {
namespace {

std::string RelayEndpoint(const PeerId& relay) {
  return fmt::format("ipc://@pando-relay-{:016x}", relay.incarnation.value());
}

}  // namespace

void HostLines::Open(const PeerId& self) {
  const Result<std::string> bound = transport_.Bind(RelayEndpoint(self));
  is_bound_ = bound.ok();
  if (!is_bound_)
    spdlog::info("cannot sum for other workers of this host: {}", bound.status().message());
}

void HostLines::Tell(bool is_given_up) {
  const PeerId before = std::exchange(given_up_, is_given_up ? relay_ : PeerId());
  if (before == given_up_) return;
  if (is_given_up)
    spdlog::info("node {} does not answer; pushing gradients to the servers", relay_.node.value());
  else if (before == relay_)
    spdlog::info("node {} answers; giving gradients to it again", relay_.node.value());
}

void HostLines::Close() {
  if (std::exchange(is_bound_, false)) transport_.Unbind();
  relay_ = given_up_ = PeerId();
}

std::set<PeerId> HostLines::Connect(const HostGroup& group, const View& view, const PeerId& self) {
  const bool is_news = std::exchange(relay_, group.relay) != group.relay;
  if (!group.has_relay()) return {};
  if (group.relay == self) {
    if (is_news)
      spdlog::info("summing the gradients of this host's {} workers", group.workers.size());
    return {};
  }
  if (is_news) {
    spdlog::info("giving gradients to node {}, a worker of this host, which sums them",
                 group.relay.node.value());
  }
  const auto relay = std::ranges::find(view.nodes, group.relay.node, &NodeInfo::node);
  const Status dialed = transport_.Dial(group.relay, RelayEndpoint(group.relay), relay->public_key);
  if (!dialed.ok()) spdlog::info("cannot reach it: {}", dialed.message());
  return dialed.ok() ? std::set{group.relay} : std::set<PeerId>();
}

}  // namespace pando
