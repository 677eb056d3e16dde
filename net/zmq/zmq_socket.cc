#include "net/zmq/zmq_socket.h"

#include <zmq.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace pando {
namespace {

// A lost connection is retried after 10 ms, then after twice as long, up to 50 ms. ZeroMQ adds up
// to 10 ms at random. So a restarted peer is connected within 60 ms.
constexpr int kReconnectMs = 10;
constexpr int kReconnectMaxMs = 50;
// These bound how long the ends of a partition need to reconnect after it. The kernel's own waits
// double each time and may be as long as the partition was. The first is for an answer to a dial;
// the second is for an acknowledgement of sent bytes, after which the connection is closed and
// dialed again.
constexpr int kDialMs = 500;
constexpr int kUnacknowledgedMs = 3000;
constexpr int kHandshakeMs = 5000;     // a peer that connects and stays silent is dropped
constexpr int kPingIntervalMs = 1000;  // finds connections that died silently
constexpr int kPingTimeoutMs = 10000;  // long: leases judge processes, this judges connections
constexpr int kBacklog = 1024;         // a whole job may dial at once
constexpr int64_t kMessageBytesMax = kFrameBytesMax;  // a peer that announces more is dropped

void SetBytes(void* socket, int option, const void* value, size_t size) {
  PANDO_CHECK(zmq_setsockopt(socket, option, value, size) == 0);
}

void SetInt(void* socket, int option, int value) {
  SetBytes(socket, option, &value, sizeof(value));
}

void SetOptions(void* socket, const ZmqSocket::Options& options) {
  SetInt(socket, ZMQ_LINGER, options.linger_ms);
  const bool is_router = options.kind == ZmqSocket::Kind::kRouter;
  SetInt(socket, ZMQ_SNDHWM, options.queued_messages_max);
  SetInt(socket, ZMQ_RCVHWM, kQueuedPerPeerMax);
  SetInt(socket, ZMQ_RECONNECT_IVL, kReconnectMs);
  SetInt(socket, ZMQ_RECONNECT_IVL_MAX, kReconnectMaxMs);
  SetInt(socket, ZMQ_CONNECT_TIMEOUT, kDialMs);
  // Only for connections that we dialed. For a peer that dialed us and does not read, the kernel
  // must not end the connection under libzmq: it aborts where its input was held back
  // ("!_io_error", libzmq #4841).
  if (!is_router) SetInt(socket, ZMQ_TCP_MAXRT, kUnacknowledgedMs);
  SetInt(socket, ZMQ_HANDSHAKE_IVL, kHandshakeMs);
  SetInt(socket, ZMQ_HEARTBEAT_IVL, kPingIntervalMs);
  SetInt(socket, ZMQ_HEARTBEAT_TIMEOUT, kPingTimeoutMs);
  SetInt(socket, ZMQ_BACKLOG, kBacklog);
  SetInt(socket, ZMQ_IPV6, 0);
  SetInt(socket, ZMQ_IMMEDIATE, 0);
  SetBytes(socket, ZMQ_MAXMSGSIZE, &kMessageBytesMax, sizeof(kMessageBytesMax));
  if (is_router) {
    SetInt(socket, ZMQ_ROUTER_MANDATORY, 1);
    SetInt(socket, ZMQ_ROUTER_HANDOVER, 1);
  } else {
    SetBytes(socket, ZMQ_ROUTING_ID, options.routing_id.data(), options.routing_id.size());
  }
}

// A signal may end any of ZeroMQ's calls, in the middle of a message too.
template <class Call>
int Uninterrupted(Call call) {
  int result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int GetInt(void* socket, int option) {
  int value = -1;
  size_t size = sizeof(value);
  const auto get = [&] { return zmq_getsockopt(socket, option, &value, &size); };
  PANDO_CHECK(Uninterrupted(get) == 0);
  return value;
}

Status BindError(const std::string& endpoint, int error) {
  std::string what_to_do = "check the address";
  if (error == EADDRINUSE) {
    what_to_do = "another process uses it; stop that one, or choose another port (0: any free one)";
  } else if (error == EADDRNOTAVAIL || error == ENODEV) {
    what_to_do =
        "this machine has no such address; bind an address that it has, or 0.0.0.0 for all";
  } else if (error == EACCES) {
    what_to_do = "not permitted; choose a port of 1024 or above, or a folder that you may write to";
  }
  return Unavailable(
      fmt::format("cannot bind {}: {}: {}", endpoint, zmq_strerror(error), what_to_do));
}

Status OutOfSockets() {
  return Unavailable(
      fmt::format("no further socket can be opened: {}; raise the limit of open files (ulimit -n) "
                  "or use fewer lanes",
                  zmq_strerror(errno)));
}

// Keeps a frame's bytes alive while ZeroMQ uses them.
using KeepAlive = std::shared_ptr<const void>;

// Runs on an I/O thread.
void ReleaseKeepAlive(void*, void* hint) {
  const std::unique_ptr<KeepAlive> owner(static_cast<KeepAlive*>(hint));
}

// A message part that refers to the frame's bytes.
void Refer(zmq_msg_t* part, const Blob& frame) {
  if (frame.size_bytes() == 0) {
    PANDO_CHECK(zmq_msg_init(part) == 0);
    return;
  }
  auto owner = std::make_unique<KeepAlive>(frame.keep_alive());
  // ZeroMQ takes a mutable pointer but only reads.
  void* bytes = const_cast<std::byte*>(frame.bytes().data());
  PANDO_CHECK(zmq_msg_init_data(part, bytes, frame.size_bytes(), ReleaseKeepAlive, owner.get()) ==
              0);
  owner.release();  // NOLINT: owned by ReleaseKeepAlive from now on
}

// A received part. Stays where it is: short parts lie within zmq_msg_t itself.
struct ReceivedPart {
  ReceivedPart() { PANDO_CHECK(zmq_msg_init(&part) == 0); }
  ~ReceivedPart() { zmq_msg_close(&part); }
  ReceivedPart(const ReceivedPart&) = delete;
  ReceivedPart& operator=(const ReceivedPart&) = delete;

  // False if there is none; with ZMQ_DONTWAIT at once.
  bool ReceiveFrom(void* socket, int flags) {
    return Uninterrupted([&] { return zmq_msg_recv(&part, socket, flags); }) >= 0;
  }
  std::span<const std::byte> bytes() {
    return {static_cast<const std::byte*>(zmq_msg_data(&part)), zmq_msg_size(&part)};
  }
  zmq_msg_t part;
};

constexpr size_t kIncarnationAt = 1;
constexpr size_t kLaneAt = kIncarnationAt + sizeof(uint64_t);
constexpr size_t kDialedAt = kLaneAt + sizeof(uint16_t);
constexpr size_t kRoutingIdBytes = kDialedAt + sizeof(uint64_t);

template <typename T>
void Append(T value, std::string* bytes) {
  for (size_t i = 0; i < sizeof(T); ++i) *bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

template <typename T>
T ValueAt(size_t begin, std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[begin + i])} << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace

std::string RoutingId(const Dialer& dialer, const PeerId& dialed) {
  std::string id(1, static_cast<char>(dialer.channel));
  Append(dialer.incarnation.value(), &id);
  Append(dialer.lane, &id);
  Append(dialed.node == kSchedulerNode ? 0 : dialed.incarnation.value(), &id);
  return id;
}

std::optional<Dialer> ParseRoutingId(std::string_view routing_id) {
  if (routing_id.size() != kRoutingIdBytes) return std::nullopt;
  return Dialer{static_cast<Channel>(routing_id[0]),
                Incarnation(ValueAt<uint64_t>(kIncarnationAt, routing_id)),
                ValueAt<uint16_t>(kLaneAt, routing_id)};
}

void ZmqSocket::Close::operator()(void* handle) const { PANDO_CHECK(zmq_close(handle) == 0); }

Result<ZmqSocket> ZmqSocket::Create(ZmqContext& context, const Options& options) {
  void* handle =
      zmq_socket(context.handle(), options.kind == Kind::kRouter ? ZMQ_ROUTER : ZMQ_DEALER);
  if (handle == nullptr) return OutOfSockets();
  SetOptions(handle, options);
  return ZmqSocket(handle, options.kind, GetInt(handle, ZMQ_FD));
}

Result<std::string> ZmqSocket::Bind(const std::string& endpoint) {
  if (zmq_bind(handle(), endpoint.c_str()) != 0) return BindError(endpoint, errno);
  char resolved[256];
  size_t size = sizeof(resolved);
  PANDO_CHECK(zmq_getsockopt(handle(), ZMQ_LAST_ENDPOINT, resolved, &size) == 0);
  return std::string(resolved);
}

Status ZmqSocket::Connect(const std::string& endpoint) {
  if (zmq_connect(handle(), endpoint.c_str()) == 0) return Status();
  return InvalidArgument(fmt::format("cannot dial {}: {}", endpoint, zmq_strerror(errno)));
}

bool ZmqSocket::has_message() const { return (GetInt(handle(), ZMQ_EVENTS) & ZMQ_POLLIN) != 0; }

ZmqSocket::Sent ZmqSocket::Send(const std::string& routing_id, const Frames& frames) {
  const auto send_id = [&] {
    return zmq_send(handle(), routing_id.data(), routing_id.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT);
  };
  if (kind_ == Kind::kRouter && Uninterrupted(send_id) < 0)
    return errno == EAGAIN ? Sent::kQueueFull : Sent::kUnroutable;
  for (size_t i = 0; i < frames.size(); ++i) {
    zmq_msg_t part;
    Refer(&part, frames[i]);
    const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
    const auto send = [&] { return zmq_msg_send(&part, handle(), more | ZMQ_DONTWAIT); };
    if (Uninterrupted(send) < 0) {
      // Either this is the first part, or the connection ended in between: ZeroMQ then discards the
      // message.
      zmq_msg_close(&part);
      return Sent::kQueueFull;
    }
  }
  return Sent::kYes;
}

bool ZmqSocket::Receive(Received* received) {
  received->routing_id.clear();
  received->frames.clear();
  received->connection_fd = -1;
  bool expects_routing_id = kind_ == Kind::kRouter;
  while (true) {
    auto part = std::make_shared<ReceivedPart>();
    // Only the first part can be missing: ZeroMQ delivers messages whole.
    if (!part->ReceiveFrom(handle(), ZMQ_DONTWAIT)) return false;
    const bool is_last = zmq_msg_more(&part->part) == 0;
    if (is_last && is_monitored_) received->connection_fd = zmq_msg_get(&part->part, ZMQ_SRCFD);
    const auto bytes = part->bytes();
    if (expects_routing_id) {
      received->routing_id.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      expects_routing_id = false;
    } else if (received->frames.size() <= kFramesPerMessageMax) {
      received->frames.emplace_back(bytes, std::move(part));
    }
    if (is_last) return true;
  }
}

Result<std::unique_ptr<ZmqMonitor>> ZmqMonitor::Create(ZmqContext& context, ZmqSocket& socket) {
  // A pair of sockets within the process, named after the socket that lives longer.
  const std::string name = fmt::format("inproc://monitor-{}", socket.handle());
  void* handle = zmq_socket(context.handle(), ZMQ_PAIR);
  if (handle == nullptr) return OutOfSockets();
  std::unique_ptr<ZmqMonitor> monitor(
      new ZmqMonitor(socket.handle(), handle, GetInt(handle, ZMQ_FD)));
  SetInt(handle, ZMQ_LINGER, 0);
  SetInt(handle, ZMQ_RCVHWM, 0);  // otherwise ZeroMQ's thread would wait for us to read
  if (zmq_socket_monitor(socket.handle(), name.c_str(), ZMQ_EVENT_DISCONNECTED) != 0) {
    return OutOfSockets();
  }
  PANDO_CHECK(zmq_connect(handle, name.c_str()) == 0);
  socket.is_monitored_ = true;
  return monitor;
}

// Ends the events first: an event that no socket reads would block ZeroMQ's thread.
ZmqMonitor::~ZmqMonitor() { PANDO_CHECK(zmq_socket_monitor(monitored_, nullptr, 0) == 0); }

// An event is two frames: its number (16 bits) and value (32 bits, here the descriptor), then the
// endpoint.
bool ZmqMonitor::Receive(int* connection_fd) {
  ReceivedPart event;
  if (!event.ReceiveFrom(handle(), ZMQ_DONTWAIT)) return false;
  constexpr size_t kValueOffset = 2;
  const auto bytes = event.bytes();
  PANDO_CHECK(bytes.size() == kValueOffset + sizeof(int32_t));
  int32_t value = 0;
  std::memcpy(&value, bytes.data() + kValueOffset, sizeof(value));
  *connection_fd = value;
  ReceivedPart endpoint;
  PANDO_CHECK(endpoint.ReceiveFrom(handle(), 0));
  return true;
}

}  // namespace pando
