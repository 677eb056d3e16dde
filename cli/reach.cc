#include "cli/reach.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "common/clock.h"
#include "common/text.h"
#include "net/address.h"
#include "net/scheduler_client.h"
#include "net/socket_address.h"
#include "scheduler/run_status.h"

namespace pando {
namespace {

constexpr std::chrono::milliseconds kPatience(5000);
constexpr std::string_view kGreeting = "pando doctor ";
constexpr std::string_view kReached = "reached";
constexpr size_t kLineBytesMax = 200;
// As many bytes as fill several packets, to find a path that passes only small packets.
constexpr size_t kBulkBytes = 64 << 10;

int64_t UnixMicros() {
  return std::chrono::duration_cast<Micros>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// One connection between two doctors. All calls block for at most kPatience.
class DoctorLine {
 public:
  explicit DoctorLine(UniqueFd fd) : fd_(std::move(fd)) {
    fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) & ~O_NONBLOCK);
    const timeval patience{.tv_sec = kPatience / std::chrono::seconds(1), .tv_usec = 0};
    for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
      setsockopt(fd_.get(), SOL_SOCKET, option, &patience, sizeof patience);
  }

  bool Send(const std::string& bytes) const {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t more = send(fd_.get(), &bytes[sent], bytes.size() - sent, MSG_NOSIGNAL);
      if (more <= 0) return false;
      sent += static_cast<size_t>(more);
    }
    return true;
  }
  bool Skip(size_t count) const {
    std::array<char, 4096> bytes;
    while (count > 0) {
      const ssize_t more = recv(fd_.get(), bytes.data(), std::min(count, bytes.size()), 0);
      if (more <= 0) return false;
      count -= static_cast<size_t>(more);
    }
    return true;
  }
  // Returns a line without its line break; none if the peer sends none, or sends no text.
  std::optional<std::string> ReadLine() const {
    std::string line;
    for (char c = 0; line.size() < kLineBytesMax && recv(fd_.get(), &c, 1, 0) == 1;) {
      if (c == '\n') return line;
      if (c < ' ' || c > '~') return std::nullopt;  // ZeroMQ begins with 0xff
      line += c;
    }
    return std::nullopt;
  }
  tcp_info Info() const {
    tcp_info info{};
    socklen_t size = sizeof info;
    getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &size);
    return info;
  }
  std::string PeerAddress() const {
    SocketAddress address;
    const bool is_known = getpeername(fd_.get(), address.generic(), &address.size) == 0;
    return is_known ? AddressText(address.generic()) : "";
  }

 private:
  UniqueFd fd_;
};

// ---- the joining machine ------------------------------------------------------------------------

// Finds the address and makes the first connection. If it returns none, `report` has the reason.
std::optional<DoctorLine> DialJoin(const Endpoint& join, ReachReport* report) {
  const Result<std::vector<std::string>> addresses = ResolveAll(join.host);
  if (!addresses.ok()) {
    report->problems.push_back(addresses.status().message() + ", in DNS or /etc/hosts");
    return std::nullopt;
  }
  for (const std::string& address : *addresses) {
    UniqueFd connection;
    const int error = DialTcp(address, join.port, kPatience, &connection);
    if (error != 0) {
      report->problems.push_back(ExplainDial(address, join.port, error));
      continue;
    }
    report->problems.clear();  // the first address that answers is used
    DoctorLine line(std::move(connection));
    const tcp_info info = line.Info();
    report->found.push_back(
        fmt::format("{}:{} takes connections: round trip {:.1f} ms, packets of {} bytes",
                    Bracketed(address), join.port, info.tcpi_rtt / 1e3, info.tcpi_snd_mss));
    return std::optional(std::move(line));
  }
  return std::nullopt;
}

// Listens where this machine's servers would listen.
Result<UniqueFd> ListenAsServer(const ReachOptions& options, const Endpoint& join,
                                std::string* advertised) {
  Endpoint endpoint;
  if (options.bind.empty()) {
    PANDO_ASSIGN_OR_RETURN(endpoint.host, LocalAddressTowards(join));
  } else {
    PANDO_ASSIGN_OR_RETURN(endpoint, ParseEndpoint(options.bind));
  }
  Endpoint bound = endpoint;
  if (endpoint.host == "*") endpoint.host = "0.0.0.0";
  PANDO_ASSIGN_OR_RETURN(const std::string address, ResolveHost(endpoint.host));
  PANDO_ASSIGN_OR_RETURN(UniqueFd fd, ListenTcp(address, endpoint.port, &bound.port));
  PANDO_ASSIGN_OR_RETURN(*advertised, AdvertisedEndpoint(bound.ToString(), join));
  return fd;
}

// Tests both directions with another doctor, which has sent `greeting`.
void AskDoctor(const DoctorLine& line, const std::string& greeting, const std::string& advertised,
               ReachReport* report) {
  const auto theirs = ParseNumber<int64_t>(std::string_view(greeting).substr(kGreeting.size()));
  if (theirs)
    report->found.push_back(fmt::format("its clock differs from ours by {:.3f} s",
                                        static_cast<double>(*theirs - UnixMicros()) / 1e6));
  if (!line.Send(advertised + "\n") || !line.Send(std::string(kBulkBytes, '.'))) {
    report->problems.push_back("the other doctor has hung up: start it again");
    return;
  }
  const std::optional<std::string> answer = line.ReadLine();
  if (!answer) {
    report->problems.emplace_back(
        "small packets arrive there and large ones do not: a router drops packets that are too "
        "large (MTU); lower the MTU of this interface, or let ICMP pass");
  } else if (*answer == kReached) {
    report->found.push_back(fmt::format("it reaches this machine at {}", advertised));
  } else {
    report->problems.push_back("from there to here: " + *answer);
  }
}

// Requests the status of the other end, which should be a scheduler, and dials the lanes in it.
void AskScheduler(const ReachOptions& options, ReachReport* report) {
  ZmqContext context(options.keys);
  const Micros start = SteadyNow();
  const Result<std::string> answer =
      RequestStatus(context, options.join, start + kPatience, "look at its log");
  if (!answer.ok()) return report->problems.push_back(answer.status().message());
  const Result<RunStatus> status = ParseStatus(*answer);
  if (!status.ok())
    return report->problems.push_back("the answer there is no status: is it another version? " +
                                      status.status().message());
  report->found.push_back(fmt::format("the scheduler answers after {:.1f} ms: {}",
                                      static_cast<double>((SteadyNow() - start).count()) / 1e3,
                                      status->phase));
  for (const RunStatus::Node& node : status->nodes) {
    for (const std::string& text : node.endpoints.value_or(std::vector<std::string>())) {
      const Result<Endpoint> lane = ParsePeerEndpoint(text);
      if (!lane.ok() || lane->kind == Endpoint::Kind::kIpc || !IsAddress(lane->host)) continue;
      UniqueFd ignored;
      const int error = DialTcp(lane->host, lane->port, kPatience, &ignored);
      const std::string name = node.name + " on " + node.host;
      if (error == 0)
        report->found.push_back(fmt::format("{} takes connections at {}", name, lane->ToString()));
      if (error != 0)
        report->problems.push_back(name + ": " + ExplainDial(lane->host, lane->port, error));
    }
  }
  report->found.emplace_back(
      "whether others reach this machine: ask the other way with pando doctor --listen there");
}

// ---- the listening machine ----------------------------------------------------------------------

// Dials an endpoint. Returns "reached", or why it was not.
std::string DialBack(const std::string& endpoint, const std::string& from) {
  const Result<Endpoint> parsed = ParsePeerEndpoint(endpoint);
  if (!parsed.ok() || parsed->kind == Endpoint::Kind::kIpc) return "that is no endpoint";
  if (parsed->host != from) {
    return fmt::format(
        "connections come from {}, and {} is to be dialed: give --bind, or do not "
        "translate addresses between the machines",
        from, parsed->host);
  }
  UniqueFd ignored;
  const int error = DialTcp(parsed->host, parsed->port, kPatience, &ignored);
  return error == 0 ? std::string(kReached) : ExplainDial(parsed->host, parsed->port, error);
}

void AnswerDoctor(const DoctorLine& line, const std::function<void(const std::string&)>& on_event) {
  const std::string from = line.PeerAddress();
  if (!line.Send(fmt::format("{}{}\n", kGreeting, UnixMicros()))) return;
  const std::optional<std::string> endpoint = line.ReadLine();
  if (!endpoint) return on_event(from + " has connected and is no doctor");
  const std::string outcome =
      line.Skip(kBulkBytes) ? DialBack(*endpoint, from) : "large packets do not arrive (MTU)";
  on_event(fmt::format("{}: {}", *endpoint, outcome));
  line.Send(outcome.substr(0, kLineBytesMax - 1) + "\n");
}

}  // namespace

std::string ExplainDial(const std::string& address, uint16_t port, int error) {
  const std::string at = fmt::format("{}:{}", Bracketed(address), port);
  switch (error) {
    case ECONNREFUSED:
      return fmt::format(
          "{} refuses connections: no process listens there; start it, or bind it "
          "to this address and not to 127.0.0.1",
          at);
    case ETIMEDOUT:
      return fmt::format(
          "{} does not answer: a firewall drops TCP to port {} on the way, or the "
          "machine is off; allow the port there",
          at, port);
    case EHOSTUNREACH:
    case ENETUNREACH:
      return fmt::format(
          "{} cannot be reached ({}): no route leads there, or a firewall rejects "
          "it; check the address, and ip route",
          at, std::strerror(error));
    default:
      return fmt::format("a connection to {} fails: {}", at, std::strerror(error));
  }
}

ReachReport TryReach(const ReachOptions& options) {
  ReachReport report;
  const Result<Endpoint> join = ParsePeerEndpoint(options.join);
  if (!join.ok() || join->kind == Endpoint::Kind::kIpc) {
    report.problems.push_back(join.ok() ? "ipc reaches this machine alone: give tcp://HOST:PORT"
                                        : join.status().message());
    return report;
  }
  std::string advertised;
  const Result<UniqueFd> listener = ListenAsServer(options, *join, &advertised);
  if (listener.ok()) report.found.push_back("servers of this machine listen at " + advertised);
  const std::optional<DoctorLine> line = DialJoin(*join, &report);
  if (!listener.ok() && report.problems.empty())  // without a route, one problem is enough
    report.problems.push_back(listener.status().message());
  if (!line) return report;
  const std::optional<std::string> greeting = line->ReadLine();
  if (!greeting || !greeting->starts_with(kGreeting)) {
    AskScheduler(options, &report);
  } else if (listener.ok()) {
    AskDoctor(*line, *greeting, advertised, &report);
  }
  return report;
}

Status ListenForDoctors(const std::string& bind, int stop_fd,
                        const std::function<void(const std::string& text)>& on_event) {
  PANDO_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(bind));
  if (endpoint.kind == Endpoint::Kind::kIpc) return InvalidArgument("give tcp://HOST:PORT");
  PANDO_ASSIGN_OR_RETURN(const std::string address,
                         ResolveHost(endpoint.host == "*" ? "0.0.0.0" : endpoint.host));
  PANDO_ASSIGN_OR_RETURN(const UniqueFd fd, ListenTcp(address, endpoint.port, &endpoint.port));
  on_event(endpoint.ToString());
  while (true) {
    std::array<pollfd, 2> polled{pollfd{fd.get(), POLLIN, 0}, pollfd{stop_fd, POLLIN, 0}};
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return Internal("poll fails");
    if (polled[1].revents != 0) return Status();
    UniqueFd peer(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.is_open()) AnswerDoctor(DoctorLine(std::move(peer)), on_event);
  }
}

}  // namespace pando
