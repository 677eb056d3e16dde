#include "view/bounded_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "view/request_head.h"

namespace pando {
namespace {

constexpr int kMsPerSecond = 1000;

// Waits for one of `events`. Returns whether one happened in time.
bool AwaitSocket(socket_t socket, short events, int timeout_ms) {
  pollfd fd{.fd = socket, .events = events, .revents = 0};
  int count = 0;
  do {
    count = poll(&fd, 1, timeout_ms);
  } while (count < 0 && errno == EINTR);
  return count > 0 && (fd.revents & events) != 0;
}

// A connection with a budget of bytes and of time for reading a request. Threads: one.
class BoundedStream : public httplib::Stream {
 public:
  struct Timeouts {
    int read_ms = 0;
    int write_ms = 0;
  };
  BoundedStream(socket_t socket, Timeouts timeouts) : socket_(socket), timeouts_(timeouts) {}

  // Returns the request's line and headers with the blank line, which read() still returns
  // afterwards. None if they do not arrive in time, or are too long.
  std::optional<std::string_view> ReadHead();
  // Reads until the client has closed its side, so that the client gets the answer: closing at once
  // would discard the answer if bytes of the request were unread.
  void Drain();

  bool is_readable() const override {
    return at_ < received_.size() || AwaitSocket(socket_, POLLIN, timeouts_.read_ms);
  }
  bool is_writable() const override { return AwaitSocket(socket_, POLLOUT, timeouts_.write_ms); }
  // Returns -1 if a budget is spent, nothing came in time, or the connection is lost.
  ssize_t read(char* out, size_t bytes) override;
  ssize_t write(const char* data, size_t bytes) override;
  // The server never uses these addresses.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  ssize_t Receive();  // as read()

  const socket_t socket_;
  const Timeouts timeouts_;
  size_t budget_bytes_ = BoundedServer::kRequestBytesMax;
  Micros read_until_ = SteadyNow() + BoundedServer::kRequestMax;
  std::string received_;  // [at_, end) is not read yet
  size_t at_ = 0;
};

ssize_t BoundedStream::Receive() {
  std::array<char, 4096> part;
  const size_t bytes = std::min(part.size(), budget_bytes_);
  if (bytes == 0 || SteadyNow() >= read_until_) return -1;
  if (!AwaitSocket(socket_, POLLIN, timeouts_.read_ms)) return -1;
  const ssize_t count = recv(socket_, part.data(), bytes, 0);
  if (count <= 0) return count;
  received_.append(part.data(), static_cast<size_t>(count));
  budget_bytes_ -= static_cast<size_t>(count);
  return count;
}

std::optional<std::string_view> BoundedStream::ReadHead() {
  for (size_t line = 0; true;) {
    const size_t end = received_.find('\n', line);
    if (end == std::string::npos) {
      if (Receive() <= 0) return std::nullopt;
      continue;
    }
    const std::string_view text = std::string_view(received_).substr(line, end - line);
    if (line > 0 && (text.empty() || text == "\r"))
      return std::string_view(received_).substr(0, end + 1);
    line = end + 1;
  }
}

ssize_t BoundedStream::read(char* out, size_t bytes) {
  if (at_ == received_.size()) {
    received_.clear();
    at_ = 0;
    if (const ssize_t count = Receive(); count <= 0) return count;
  }
  bytes = received_.copy(out, bytes, at_);
  at_ += bytes;
  return static_cast<ssize_t>(bytes);
}

ssize_t BoundedStream::write(const char* data, size_t bytes) {
  return is_writable() ? send(socket_, data, bytes, MSG_NOSIGNAL) : -1;
}

void BoundedStream::Drain() {
  constexpr std::chrono::seconds kDrainMax{1};
  shutdown(socket_, SHUT_WR);
  budget_bytes_ = BoundedServer::kRequestBytesMax;
  read_until_ = SteadyNow() + kDrainMax;
  while (Receive() > 0) received_.clear();
}

}  // namespace

bool BoundedServer::process_and_close_socket(socket_t socket) {
  const auto to_ms = [](time_t seconds) { return static_cast<int>(seconds) * kMsPerSecond; };
  BoundedStream stream(
      socket, {.read_ms = to_ms(read_timeout_sec_), .write_ms = to_ms(write_timeout_sec_)});
  bool is_good = false;
  if (const std::optional<std::string_view> head = stream.ReadHead()) {
    if (const std::string fault = FindFault(*head); fault.empty()) {
      bool is_closed = false;  // all connections are closed
      is_good = process_request(stream, /*close_connection=*/true, is_closed, nullptr);
    } else {
      is_good = stream.write_format(
                    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n"
                    "Content-Length: %zu\r\n\r\n%s\n",
                    fault.size() + 1, fault.c_str()) > 0;
    }
  }
  if (is_good) stream.Drain();
  shutdown(socket, SHUT_RDWR);
  close(socket);
  return is_good;
}

}  // namespace pando
