// Peers that speak what they like, for the tests that are hostile to our ports: bytes over TCP, and
// frames over ZeroMQ under a routing id of their choice.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "common/clock.h"
#include "common/unique_fd.h"
#include "net/address.h"
#include "net/zmq/zmq_context.h"
#include "proto/codec.h"
#include "tests/deadline.h"

namespace pando {

using RawFrame = std::vector<char>;
using RawMessage = std::vector<RawFrame>;

inline RawFrame RandomBytes(std::mt19937_64& random, size_t size) {
  RawFrame bytes(size);
  for (char& b : bytes) b = static_cast<char>(random());
  return bytes;
}

inline RawMessage ToRaw(const Envelope& envelope) {
  RawMessage raw;
  for (const Blob& frame : Encode(envelope)) {
    const auto* bytes = reinterpret_cast<const char*>(frame.bytes().data());
    raw.emplace_back(bytes, bytes + frame.size_bytes());
  }
  return raw;
}

// A greeting of ZMTP 3.1 that names this mechanism.
inline RawFrame Greeting(const std::string& mechanism) {
  RawFrame greeting(64, 0);
  greeting[0] = '\xff';
  greeting[8] = 1;
  greeting[9] = '\x7f';
  greeting[10] = 3;
  greeting[11] = 1;
  std::ranges::copy(mechanism, &greeting[12]);
  return greeting;
}

// How a frame of 62 MiB begins: its flags, and its length.
inline RawFrame LongFrame(char flags) { return {flags, 0, 0, 0, 0, 3, '\xe0', 0, 0}; }

inline sockaddr_in LoopbackAddress(const std::string& endpoint) {
  const Result<Endpoint> parsed = ParseEndpoint(endpoint);
  REQUIRE(parsed.ok());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(parsed->port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A connected TCP socket that speaks no ZMTP, or half of it.
class RawTcp {
 public:
  explicit RawTcp(const std::string& endpoint)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    constexpr timeval kPatience{.tv_sec = kEventDeadline.count(), .tv_usec = 0};
    const sockaddr_in address = LoopbackAddress(endpoint);
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    REQUIRE(connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  }
  // The next one that dials the listening socket.
  static RawTcp Accept(int listening_fd) { return RawTcp(accept(listening_fd, nullptr, nullptr)); }
  int fd() const { return fd_.get(); }
  // The peer may have hung up by now, and that is fine.
  void Send(const RawFrame& bytes) const { (void)TrySend(bytes); }
  // False if the peer has hung up. With MSG_DONTWAIT as much as has room is sent.
  bool TrySend(const RawFrame& bytes, int flags = 0) const {
    return send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | flags) >= 0 ||
           errno == EAGAIN;
  }
  // Greeting with mechanism NULL, READY as a DEALER.
  void BeDealer() const {
    Send(Greeting("NULL"));
    const char ready[] =
        "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06"
        "DEALER";
    Send(RawFrame(ready, ready + sizeof(ready) - 1));
    ReadUntil("ROUTER");  // traffic before the peer's READY would be a different error
  }
  // Reads until this text has come.
  void ReadUntil(const std::string& text) const {
    std::string all;
    char byte = 0;
    while (all.find(text) == std::string::npos) {
      REQUIRE(recv(fd_.get(), &byte, 1, 0) == 1);
      all += byte;
    }
  }
  // The next bytes, as many.
  std::string Read(size_t size) const {
    std::string bytes(size, 0);
    REQUIRE(recv(fd_.get(), bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
    return bytes;
  }
  // Reads until the peer hangs up; false if it has not by the deadline.
  bool IsCutOff() const {
    char ignored[256];
    ssize_t size = 1;
    while (size > 0) size = recv(fd_.get(), ignored, sizeof(ignored), 0);
    return size == 0 || errno == ECONNRESET;
  }

 private:
  explicit RawTcp(int fd) : fd_(fd) { REQUIRE(fd_.is_open()); }
  UniqueFd fd_;
};

// `count` connections at once send long frames after the greeting, until all are cut off.
inline void SendLongFrames(const std::string& endpoint, const std::string& mechanism,
                           size_t count) {
  const RawFrame part(1 << 20, 'x');
  std::vector<std::unique_ptr<RawTcp>> open;
  for (size_t i = 0; i < count; ++i) {
    open.push_back(std::make_unique<RawTcp>(endpoint));
    open.back()->Send(Greeting(mechanism));
    open.back()->Send(LongFrame(i % 2 == 0 ? '\2' : '\6'));  // a message, a command
  }
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (!open.empty()) {
    REQUIRE(SteadyNow() < deadline);
    std::erase_if(open, [&](const auto& tcp) { return !tcp->TrySend(part, MSG_DONTWAIT); });
    std::vector<pollfd> polled;
    for (const auto& tcp : open) polled.push_back({tcp->fd(), POLLOUT, 0});
    if (!open.empty()) poll(polled.data(), polled.size(), 1000);
  }
}

// A ZeroMQ peer under this routing id, or one that its library makes up. Reads nothing.
class RawDealer {
 public:
  struct Options {
    std::string routing_id;
    int linger_ms = 0;            // how long what was sent outlives it
    std::string server_key = {};  // with the context's keys: what the peer must show
  };
  RawDealer(ZmqContext& context, const std::string& endpoint, const Options& options)
      : socket_(context.zmq_context(), zmq::socket_type::dealer) {
    constexpr int kPatienceMs = 1000;
    socket_.set(zmq::sockopt::linger, options.linger_ms);
    socket_.set(zmq::sockopt::sndtimeo, kPatienceMs);
    if (!options.routing_id.empty()) socket_.set(zmq::sockopt::routing_id, options.routing_id);
    if (!options.server_key.empty()) {
      const KeyPair& own = context.keys().Of(context.keys().role());
      socket_.set(zmq::sockopt::curve_serverkey, options.server_key);
      socket_.set(zmq::sockopt::curve_publickey, own.public_key);
      socket_.set(zmq::sockopt::curve_secretkey, own.secret_key);
    }
    socket_.connect(endpoint);
  }
  // False if the peer takes no more.
  bool Send(const RawMessage& message) const {
    for (size_t i = 0; i < message.size(); ++i) {
      const bool is_last = i + 1 == message.size();
      const auto flags = is_last ? zmq::send_flags::none : zmq::send_flags::sndmore;
      if (!socket_.send(zmq::buffer(message[i]), flags)) return false;
    }
    return true;
  }

 private:
  mutable zmq::socket_t socket_;
};

}  // namespace pando
