#include "net/zmq/handshake_watch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "common/check.h"

namespace pando {
namespace {

constexpr Micros kInterval = std::chrono::milliseconds(5);
constexpr uint64_t kHandshakeBytesMax = 64 << 10;
// If more are unfinished, those older than kCrowdedFor end. A whole job may dial at once.
constexpr size_t kHandshakesMax = 64;
constexpr Micros kCrowdedFor = std::chrono::milliseconds(500);
// After this time ZeroMQ has ended a connection without a handshake.
constexpr Micros kWatchedFor = std::chrono::milliseconds(2 * kHandshakeMs);
// The descriptors kept for files and connections that we dial. A new one is the lowest free one.
constexpr uint64_t kDescriptorsKept = 16;

uint64_t DescriptorsMax() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : UINT64_MAX;
}

// Returns the bytes that a ROUTER of ZMTP 3.1 sends before it has accepted the peer's key, greeting
// and frame headers included: 64 bytes, and the WELCOME of CURVE or PLAIN.
uint64_t BytesSentFirst(LineSecurity::Kind security) {
  using Kind = LineSecurity::Kind;
  if (security == Kind::kCurveServer) return 64 + 170;
  return security == Kind::kPlainServer ? 64 + 10 : UINT64_MAX;
}

struct Traffic {
  uint64_t taken_bytes = 0;  // taken by ZeroMQ
  uint64_t acknowledged_bytes = 0;
};

// Returns nullopt if it is not a TCP connection.
std::optional<Traffic> FindTraffic(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  int waiting_bytes = 0;  // read later, so it can only be too high
  if (ioctl(fd, FIONREAD, &waiting_bytes) != 0) return std::nullopt;
  const uint64_t waiting = static_cast<uint64_t>(std::max(waiting_bytes, 0));
  return Traffic{info.tcpi_bytes_received - std::min<uint64_t>(waiting, info.tcpi_bytes_received),
                 info.tcpi_bytes_acked};
}

// Ends a TCP connection and drops the bytes that wait in the kernel. After a shutdown ZeroMQ would
// read them.
void Reset(int fd) {
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  connect(fd, &nowhere, sizeof(nowhere));
}

}  // namespace

HandshakeWatch::HandshakeWatch(std::unique_ptr<ZmqMonitor> monitor, LineSecurity::Kind security)
    : monitor_(std::move(monitor)), security_(security), thread_([this] { Run(); }) {}

HandshakeWatch::~HandshakeWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wake_.Raise();
  thread_.join();
}

std::deque<HandshakeWatch::News> HandshakeWatch::TakeNews() {
  {
    const std::lock_guard lock(mutex_);
    const bool was_idle = connections_.empty();
    ReadEvents();  // the thread gets no notification of these events
    if (was_idle && !connections_.empty()) wake_.Raise();
  }
  return news_.Drain();
}

void HandshakeWatch::Run() {
  std::array<pollfd, 2> polled{{{monitor_->fd(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}}};
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    ReadEvents();
    EndExcessive();
    const bool is_idle = connections_.empty();
    lock.unlock();
    poll(polled.data(), polled.size(), is_idle ? -1 : static_cast<int>(kInterval / Micros(1000)));
    wake_.Clear();
    lock.lock();
  }
}

void HandshakeWatch::ReadEvents() {
  using Kind = ZmqMonitor::Event::Kind;
  while (const std::optional<ZmqMonitor::Event> event = monitor_->Receive()) {
    if (event->kind == Kind::kAccepted) {
      OnAccepted(event->connection_fd);
    } else if (event->kind == Kind::kEnded) {
      connections_.erase(event->connection_fd);
      std::ignore = news_.Push({.ended_fd = event->connection_fd});
    } else if (security_ == LineSecurity::Kind::kNone) {
      connections_.clear();
    }
  }
}

// ZeroMQ reports the end of a connection before it closes the descriptor. So the copy is the
// connection's, or the next event removes it. Without a free descriptor the system would wake
// ZeroMQ's thread for waiting connections without a pause.
void HandshakeWatch::OnAccepted(int connection_fd) {
  const uint64_t descriptors_max = DescriptorsMax();
  if (static_cast<uint64_t>(connection_fd) + kDescriptorsKept >= descriptors_max) {
    shutdown(connection_fd, SHUT_RDWR);  // does nothing if it is another file by now
    return NoteTurnedAway(
        fmt::format("{} files may be open; raise the limit (ulimit -n)", descriptors_max));
  }
  UniqueFd copy(fcntl(connection_fd, F_DUPFD_CLOEXEC, 0));
  if (copy.is_open())
    connections_.insert_or_assign(connection_fd, Connection{std::move(copy), SteadyNow()});
}

void HandshakeWatch::NoteTurnedAway(const std::string& why) {
  ++turned_away_;
  if (warned_.insert(why).second)
    std::ignore = news_.Push({.warning = "further connections are turned away: " + why});
}

// Bytes that ZeroMQ took before it reported the finished handshake belong to the handshake.
void HandshakeWatch::EndExcessive() {
  const std::vector<int> excessive = FindExcessive(SteadyNow());
  if (!excessive.empty()) ReadEvents();
  for (const int connection_fd : excessive) {
    const auto ended = connections_.extract(connection_fd);
    if (ended.empty()) continue;
    Reset(ended.mapped().copy.get());
    NoteTurnedAway("they send much, or wait, before their handshake is finished");
  }
}

// Returns the connections to end, and forgets those that have finished their handshake.
std::vector<int> HandshakeWatch::FindExcessive(Micros now) {
  const uint64_t sent_first = BytesSentFirst(security_);
  std::vector<int> excessive;
  std::vector<std::pair<Micros, int>> waiting;
  std::erase_if(connections_, [&](const auto& entry) {
    const auto& [fd, connection] = entry;
    const std::optional<Traffic> traffic = FindTraffic(connection.copy.get());
    if (!traffic || traffic->acknowledged_bytes > sent_first ||
        now - connection.accepted_at > kWatchedFor)
      return true;
    if (traffic->taken_bytes > kHandshakeBytesMax)
      excessive.push_back(fd);
    else
      waiting.emplace_back(connection.accepted_at, fd);
    return false;
  });
  if (waiting.size() <= kHandshakesMax) return excessive;
  std::ranges::sort(waiting);
  waiting.resize(waiting.size() - kHandshakesMax);
  for (const auto& [accepted_at, fd] : waiting)
    if (now - accepted_at > kCrowdedFor) excessive.push_back(fd);
  return excessive;
}

}  // namespace pando
