#include "node/sum_lines.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace pando {
namespace {

std::string RelayEndpoint(const NodeInfo& relay) {
  return relay.lane_endpoints.empty()
             ? fmt::format("ipc://@pando-relay-{:016x}", relay.incarnation.value())
             : relay.lane_endpoints.front();
}

}  // namespace

Status SumLines::ListenForRack(const std::string& rack, std::string bind, JoiningProcess* process) {
  const bool is_local = process->scheduler_endpoint.starts_with("ipc://");
  if (rack.empty() || is_local) return Status();
  if (bind.empty()) {
    PANDO_ASSIGN_OR_RETURN(bind, DefaultBind(*process));
  }
  const Result<std::string> bound = transport_.Bind(bind);
  if (!bound.ok()) {
    spdlog::info("cannot sum for the workers of rack {}: {}", rack, bound.status().message());
    return Status();
  }
  process->registration.rack = rack;
  process->registration.lane_endpoints = {*bound};
  is_in_rack_ = true;
  return Status();
}

void SumLines::Open(const PeerId& self) {
  if (is_in_rack_) return;
  const Result<std::string> bound =
      transport_.Bind(RelayEndpoint({.incarnation = self.incarnation}));
  is_bound_ = bound.ok();
  if (!is_bound_)
    spdlog::info("cannot sum for other workers of this host: {}", bound.status().message());
}

void SumLines::Tell(bool is_given_up) {
  if (std::exchange(is_given_up_, is_given_up) == is_given_up) return;
  spdlog::info(is_given_up ? "a worker that sums for this one does not answer; pushing its part to "
                             "the servers"
                           : "the workers that sum for this one answer again");
}

void SumLines::Close() {
  if (std::exchange(is_bound_, false)) transport_.Unbind();
  relays_.clear();
  is_given_up_ = false;
}

std::set<PeerId> SumLines::Connect(const SumGroup& group, const View& view, const PeerId& self) {
  std::set<PeerId> relays = group.AllRelays();
  const bool is_relay = relays.contains(self);
  const bool has_changed = std::exchange(relays_, relays) != relays;
  if (has_changed) is_given_up_ = false;
  if (has_changed && !relays.empty()) {
    spdlog::info(
        "the gradients of {} workers are summed before they leave this {}, by {} of them{}",
        group.workers.size(), FindNode(view, self.node)->rack.empty() ? "host" : "rack",
        relays.size(), is_relay ? ", among them this one" : "");
  }
  relays.erase(self);
  std::erase_if(relays, [&](const PeerId& peer) {
    const NodeInfo& relay = *FindNode(view, peer.node);
    const Status dialed = transport_.Dial(peer, RelayEndpoint(relay), relay.public_key);
    if (!dialed.ok()) spdlog::info("cannot reach node {}: {}", peer.node.value(), dialed.message());
    return !dialed.ok();
  });
  return relays;
}

}  // namespace pando
