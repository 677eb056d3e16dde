#include "net/scheduler_lines.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "common/endpoint.h"
#include "net/transport.h"

namespace pando {
namespace {

PeerId SchedulerAt(uint16_t lane) { return {kSchedulerNode, Incarnation(), lane}; }

// Returns the endpoint with a higher port, or "" if it cannot be dialed: the leader may have named
// anything.
std::string WithOffset(const std::string& text, uint16_t offset) {
  Result<Endpoint> endpoint = ParsePeerEndpoint(text);
  if (!endpoint.ok() || endpoint->kind != Endpoint::Kind::kTcp) return "";
  endpoint->port += offset;
  return endpoint->ToString();
}

}  // namespace

Status SchedulerLines::Dial(const std::string& endpoints, const std::string& public_key) {
  given_ = SplitEndpoints(endpoints);
  public_key_ = public_key;
  if (given_.size() + kSchedulersMax > kStandbyLane) {
    return InvalidArgument(fmt::format("{} schedulers' endpoints are too many: give at most {}",
                                       given_.size(), kStandbyLane - kSchedulersMax));
  }
  return DialAll();
}

void SchedulerLines::Follow() {
  if (is_dialed() && known_.version() != known_version_) std::ignore = DialAll();
}

// Returns the error of an endpoint that was given. One that the leader named may have a name that
// this machine cannot use.
Status SchedulerLines::DialAll() {
  known_version_ = known_.version();
  std::vector<std::string> wanted = given_;
  for (const std::string& known : known_.endpoints()) {
    const std::string endpoint = WithOffset(known, port_offset_);
    if (!endpoint.empty() && std::ranges::find(wanted, endpoint) == wanted.end())
      wanted.push_back(endpoint);
  }
  std::erase_if(lanes_, [&](const auto& entry) {
    const bool stays = std::ranges::find(wanted, entry.first) != wanted.end();
    if (!stays) transport_.HangUp(SchedulerAt(entry.second));
    return !stays;
  });
  Status status;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (lanes_.contains(wanted[i])) continue;
    uint16_t lane = 1;  // 0 stands for all of them
    while (std::ranges::find(lanes_, lane, [](const auto& entry) { return entry.second; }) !=
           lanes_.end())
      ++lane;
    const Status dialed = transport_.Dial(SchedulerAt(lane), wanted[i], public_key_);
    if (dialed.ok()) lanes_[wanted[i]] = lane;
    if (status.ok() && i < given_.size()) status = dialed;
  }
  return status;
}

}  // namespace pando
