// Measures raw TCP on loopback: requests and replies of the payload's size, and no protocol.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/cpp/push_pull/peers.h"
#include "common/unique_fd.h"

namespace pando::bench {
namespace {

using Clock = std::chrono::steady_clock;

Status SocketError(const char* what) {
  return Unavailable(fmt::format("raw TCP: cannot {}: {}", what, std::strerror(errno)));
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void DoNotWait(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

bool SendAll(int fd, const std::vector<char>& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool ReceiveAll(int fd, std::vector<char>* bytes) {
  return recv(fd, bytes->data(), bytes->size(), MSG_WAITALL) == static_cast<ssize_t>(bytes->size());
}

// Window counts the requests that may be sent. A receiver that takes a reply makes room for one.
class Window {
 public:
  explicit Window(size_t size) : free_(size) {}
  void Enter() {  // called by the sender; waits for room
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return free_ > 0; });
    --free_;
    sent_at_.push_back(Clock::now());
  }
  Clock::duration Leave() {  // called by the receiver; returns the time of the oldest request
    const std::lock_guard lock(mutex_);
    ++free_;
    const Clock::duration latency = Clock::now() - sent_at_.front();
    sent_at_.pop_front();
    changed_.notify_one();
    return latency;
  }

 private:
  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  size_t free_;
  std::deque<Clock::time_point> sent_at_;
};

}  // namespace

Status RunTcpServer(const PeerArgs& args, CounterSlot& counters) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), any, size) != 0 || listen(listener.get(), 1) != 0)
    return SocketError("listen on loopback");
  getsockname(listener.get(), any, &size);
  counters.port = ntohs(address.sin_port);
  const UniqueFd client(accept(listener.get(), nullptr, nullptr));
  if (!client.is_open()) return SocketError("accept");
  DoNotWait(client.get());
  std::vector<char> request(args.load.shard_bytes), reply(args.load.shard_bytes);
  while (ReceiveAll(client.get(), &request)) {
    if (!SendAll(client.get(), reply)) break;
  }
  return SocketError("go on: the client has gone");
}

Status RunTcpClient(const PeerArgs& args, CounterSlot& counters, const CounterSlot& server) {
  const sockaddr_in address = Loopback(static_cast<uint16_t>(server.WaitForPort()));
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return SocketError("dial the server");
  DoNotWait(fd.get());
  Window window(args.load.shards_per_server);
  std::jthread sender([&] {
    const std::vector<char> request(args.load.shard_bytes);
    do {
      window.Enter();
    } while (SendAll(fd.get(), request));
  });
  std::vector<char> reply(args.load.shard_bytes);
  while (ReceiveAll(fd.get(), &reply)) {
    counters.message_count.fetch_add(2, std::memory_order_relaxed);
    counters.NoteReply(args.load.shard_bytes, window.Leave());
  }
  _exit(1);  // the server has gone, and the sender may wait for ever
}

}  // namespace pando::bench
