// Which processes may join the run: RunMembers::ReasonToRefuse and its parts.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "proto/message_limits.h"
#include "scheduler/run_facts.h"

namespace pando {
namespace {

constexpr size_t kHostBytesMax = 253;  // RFC 1035
// "tcp://", a host name, the port; an ipc path has 107 bytes at most.
constexpr size_t kEndpointBytesMax = 300;

bool IsOfOneMachine(const std::string& endpoint) {
  return endpoint.starts_with("ipc://") || endpoint.starts_with("tcp://127.");
}

// Rejects endpoints that no peer can connect to: "tcp://HOST:PORT" without wildcards, and
// "ipc://PATH", are accepted.
bool IsDialable(std::string_view endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  constexpr std::string_view kIpc = "ipc://";
  if (endpoint.starts_with(kIpc)) return endpoint.size() > kIpc.size();
  const size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kTcp) || colon <= kTcp.size()) return false;
  const std::string_view host = endpoint.substr(kTcp.size(), colon - kTcp.size());
  const std::string_view port = endpoint.substr(colon + 1);
  const auto is_of_host = [](char c) {
    const char lower = static_cast<char>(c | 0x20);
    return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  };
  return std::ranges::all_of(host, is_of_host) && host != "0.0.0.0" && port.size() <= 5 &&
         ParseNumber<uint16_t>(port).value_or(0) >= 1;
}

std::string ReasonNotToDial(const Register& registration) {
  for (const std::string& endpoint : registration.lane_endpoints) {
    if (endpoint.size() > kEndpointBytesMax)
      return fmt::format("a lane's endpoint has {} bytes; at most {} were expected",
                         endpoint.size(), kEndpointBytesMax);
    if (!IsDialable(endpoint))
      return "a lane's endpoint is '" + endpoint + "'; expected tcp://HOST:PORT or ipc://PATH";
  }
  return "";
}

}  // namespace

std::string RunMembers::ReasonToRefuse(const Register& registration) const {
  if (run_.phase.is_ending()) return "the run is over";
  const bool is_server = registration.role == Role::kServer;
  if (is_server != !registration.lane_endpoints.empty() ||
      registration.lane_endpoints.size() > kLanesMax)
    return fmt::format("a server registers 1 to {} lanes, a worker none", kLanesMax);
  // The journal and every view keep the registration.
  if (registration.host.size() > kHostBytesMax)
    return fmt::format("a host name has {} bytes; at most {} were expected",
                       registration.host.size(), kHostBytesMax);
  if (std::string reason = ReasonNotToDial(registration); !reason.empty()) return reason;
  if (std::string reason = ReasonOutOfReach(registration); !reason.empty()) return reason;
  if (std::string reason = ReasonNotInGroup(registration); !reason.empty()) return reason;
  if (next_node_ < kNodesMax) return "";
  return fmt::format("the run has seen {} processes, the most that it can name; start it again",
                     kNodesMax - 1);
}

// A server that listens for its own machine alone cannot serve members of other machines.
std::string RunMembers::ReasonOutOfReach(const Register& registration) const {
  const auto reason = [](const Register& server, const std::string& other) -> std::string {
    const auto at = std::ranges::find_if(server.lane_endpoints, IsOfOneMachine);
    if (at == server.lane_endpoints.end()) return "";
    return fmt::format(
        "the server on {} listens on {}, which {} cannot reach; start it with --insecure and "
        "without --bind, or with an address that both can reach",
        server.host, *at, other);
  };
  for (const auto& [node, member] : members_.all()) {
    const Register& other = member.registration;
    if (other.host == registration.host) continue;
    if (std::string text = reason(registration, other.host); !text.empty()) return text;
    if (std::string text = reason(other, registration.host); !text.empty()) return text;
  }
  return "";
}

// An allreduce group has the same members from its beginning to its end. Its one server is the
// process of worker 0.
std::string RunMembers::ReasonNotInGroup(const Register& registration) const {
  if (!run_.IsGroup()) return "";
  const bool has_begun = run_.phase.is_running();
  const bool is_server = registration.role == Role::kServer;
  const Member* worker =
      members_.FindProcess(Role::kWorker, registration.host, registration.process_id);
  if (is_server && worker != nullptr && !has_begun) return "";
  const std::string what = "the run's strategy is allreduce: ";
  if (is_server) return what + "it has no servers; run it with --strategy ps to have servers";
  const auto is_worker = [](const auto& entry) { return entry.second.role() == Role::kWorker; };
  const uint32_t wanted = run_.plan.job.workers;
  if (has_begun || std::ranges::count_if(members_.all(), is_worker) >= wanted)
    return what + fmt::format(
                      "its {} workers are the group, and no other can join it; run it "
                      "with --strategy ps for that",
                      wanted);
  if (registration.wanted_rank != kAnyRank && registration.wanted_rank >= wanted)
    return what + fmt::format("its workers have ranks 0 to {}", wanted - 1);
  return "";
}

}  // namespace pando
