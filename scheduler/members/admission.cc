#include "scheduler/members/admission.h"

#include <algorithm>
#include <string_view>

#include "proto/message_limits.h"

namespace pando {
namespace {

constexpr size_t kHostBytesMax = 253;  // RFC 1035
// "tcp://", a host name, the port; an ipc path has 107 bytes at most.
constexpr size_t kEndpointBytesMax = 300;

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
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_of_host = [&](char c) {
    const char lower = static_cast<char>(c | 0x20);
    return (lower >= 'a' && lower <= 'z') || is_digit(c) || c == '.' || c == '-' || c == '_';
  };
  uint32_t port_value = 0;
  for (char c : port.substr(0, 5)) port_value = 10 * port_value + static_cast<uint32_t>(c - '0');
  return std::ranges::all_of(host, is_of_host) && host != "0.0.0.0" && port.size() <= 5 &&
         std::ranges::all_of(port, is_digit) && port_value >= 1 && port_value <= UINT16_MAX;
}

std::string ReasonNotToDial(const Register& registration) {
  for (const std::string& endpoint : registration.lane_endpoints) {
    if (endpoint.size() > kEndpointBytesMax)
      return "a lane's endpoint has " + std::to_string(endpoint.size()) + " bytes; at most " +
             std::to_string(kEndpointBytesMax) + " were expected";
    if (!IsDialable(endpoint))
      return "a lane's endpoint is '" + endpoint + "'; expected tcp://HOST:PORT or ipc://PATH";
  }
  return "";
}

// An allreduce group has the same members from its beginning to its end. Its one server is the
// process of worker 0.
std::string ReasonNotInGroup(const Register& registration, const AdmissionState& state) {
  const auto is_of_process = [&](const auto& entry) {
    const Register& other = entry.second.registration;
    return other.role == Role::kWorker && other.host == registration.host &&
           other.process_id == registration.process_id;
  };
  const bool has_worker = std::ranges::any_of(state.members.all(), is_of_process);
  if (registration.role == Role::kServer && has_worker && !state.phase.is_running()) return "";
  const std::string what = "the run's strategy is allreduce: ";
  if (registration.role == Role::kServer)
    return what + "it has no servers; run it with --strategy ps to have servers";
  const auto is_worker = [](const auto& entry) { return entry.second.role() == Role::kWorker; };
  const auto count = std::ranges::count_if(state.members.all(), is_worker);
  const uint32_t wanted = state.job.workers;
  if (state.phase.is_running() || count >= wanted)
    return what + "its " + std::to_string(wanted) +
           " workers are the group, and no other can join it; run it with --strategy ps for that";
  if (registration.wanted_rank != kAnyRank && registration.wanted_rank >= wanted)
    return what + "its workers have ranks 0 to " + std::to_string(wanted - 1);
  return "";
}

}  // namespace

std::string ReasonToRefuse(const Register& registration, const AdmissionState& state) {
  if (state.phase.is_ending()) return "the run is over";
  const bool is_server = registration.role == Role::kServer;
  if (is_server != !registration.lane_endpoints.empty() ||
      registration.lane_endpoints.size() > kLanesMax)
    return "a server registers 1 to " + std::to_string(kLanesMax) + " lanes, a worker none";
  // The journal and every view keep the registration.
  if (registration.host.size() > kHostBytesMax)
    return "a host name has " + std::to_string(registration.host.size()) + " bytes; at most " +
           std::to_string(kHostBytesMax) + " were expected";
  if (std::string reason = ReasonNotToDial(registration); !reason.empty()) return reason;
  if (state.job.strategy == Strategy::kAllreduce) {
    if (std::string reason = ReasonNotInGroup(registration, state); !reason.empty()) return reason;
  }
  if (state.next_node < kNodesMax) return "";
  return "the run has seen " + std::to_string(kNodesMax - 1) +
         " processes, the most that it can name; start it again";
}

}  // namespace pando
