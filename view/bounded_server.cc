#include "view/bounded_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "common/clock.h"

namespace pando {
namespace {

constexpr int kMsPerSecond = 1000;

// Whether one of `events` came in time.
bool AwaitSocket(socket_t socket, short events, int timeout_ms) {
  pollfd fd{.fd = socket, .events = events, .revents = 0};
  int count = 0;
  do {
    count = poll(&fd, 1, timeout_ms);
  } while (count < 0 && errno == EINTR);
  return count > 0 && (fd.revents & events) != 0;
}

// A connection, which has a budget of bytes and of time to read a request. Threads: one.
class BoundedStream : public httplib::Stream {
 public:
  struct Timeouts {
    int read_ms = 0;
    int write_ms = 0;
  };
  BoundedStream(socket_t socket, Timeouts timeouts) : socket_(socket), timeouts_(timeouts) {}

  // For the next request.
  void Allow(size_t bytes_max, Micros time_max) {
    budget_bytes_ = bytes_max;
    read_until_ = SteadyNow() + time_max;
  }
  bool has_received() const { return at_ < end_; }

  bool is_readable() const override {
    return has_received() || AwaitSocket(socket_, POLLIN, timeouts_.read_ms);
  }
  bool is_writable() const override { return AwaitSocket(socket_, POLLOUT, timeouts_.write_ms); }
  // -1: a budget is spent, nothing came in time, or the connection is lost.
  ssize_t read(char* out, size_t bytes) override;
  ssize_t write(const char* data, size_t bytes) override;
  // Nothing here asks for addresses.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  const socket_t socket_;
  const Timeouts timeouts_;
  size_t budget_bytes_ = 0;
  Micros read_until_{0};
  std::array<char, 4096> buffer_{};  // received: [at_, end_) is not read yet
  size_t at_ = 0;
  size_t end_ = 0;
};

ssize_t BoundedStream::read(char* out, size_t bytes) {
  bytes = std::min(bytes, budget_bytes_);
  if (bytes == 0 || SteadyNow() >= read_until_) return -1;
  if (at_ == end_) {
    if (!AwaitSocket(socket_, POLLIN, timeouts_.read_ms)) return -1;
    const ssize_t count = recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (count <= 0) return count;
    at_ = 0;
    end_ = static_cast<size_t>(count);
  }
  bytes = std::min(bytes, end_ - at_);
  std::copy_n(buffer_.data() + at_, bytes, out);
  at_ += bytes;
  budget_bytes_ -= bytes;
  return static_cast<ssize_t>(bytes);
}

ssize_t BoundedStream::write(const char* data, size_t bytes) {
  return is_writable() ? send(socket_, data, bytes, MSG_NOSIGNAL) : -1;
}

}  // namespace

bool BoundedServer::process_and_close_socket(socket_t socket) {
  const auto to_ms = [](time_t seconds) { return static_cast<int>(seconds) * kMsPerSecond; };
  BoundedStream stream(
      socket, {.read_ms = to_ms(read_timeout_sec_), .write_ms = to_ms(write_timeout_sec_)});
  bool is_good = true;
  for (size_t left = keep_alive_max_count_; is_good && left > 0 && svr_sock_ != INVALID_SOCKET;
       --left) {
    if (!stream.has_received() && !AwaitSocket(socket, POLLIN, to_ms(keep_alive_timeout_sec_)))
      break;
    stream.Allow(kRequestBytesMax, kRequestMax);
    bool is_closed = false;
    is_good = process_request(stream, /*close_connection=*/left == 1, is_closed, nullptr);
    is_good = is_good && !is_closed;
  }
  shutdown(socket, SHUT_RDWR);
  close(socket);
  return is_good;
}

}  // namespace pando
