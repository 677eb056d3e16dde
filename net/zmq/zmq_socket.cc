#include "net/zmq/zmq_socket.h"

#include <fmt/core.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <tuple>

#include "common/hash.h"
#include "common/system.h"
#include "net/zmq/zmq_monitor.h"

namespace pando {
namespace {

// A lost connection is retried after 10 ms, then after twice as long, up to 50 ms. ZeroMQ adds up
// to 10 ms at random. So a restarted peer is connected within 60 ms.
constexpr int kReconnectMs = 10;
constexpr int kReconnectMaxMs = 50;
// These bound how long the ends of a partition need to reconnect after it. The kernel's own waits
// double each time and may become as long as the partition was. The first one bounds the wait for
// an answer to a dial. The second one bounds the wait for an acknowledgement of sent bytes; then
// the connection is closed and dialed again.
constexpr int kDialMs = 500;
constexpr int kUnacknowledgedMs = 3000;
// The kernel's probes find connections that died silently: with kUnacknowledgedMs, one probe
// without an answer ends the connection. ZeroMQ's own pings must stay off: their timer aborts the
// process if the connection ended while its input was held back ("!_io_error", libzmq #4841).
constexpr int kProbeAfterS = 5;
constexpr int kProbeIntervalS = 1;
constexpr int kBacklog = 1024;  // a whole job may dial at once
// A peer that announces a longer message is dropped. CURVE adds 33 bytes.
constexpr int64_t kMessageBytesMax = kFrameBytesMax + 64;

// Makes a call of cppzmq and catches its exceptions. Returns the error's number, or 0. A signal may
// end any call, even in the middle of a message; the call is then repeated.
template <class Call>
int ErrorFrom(Call call) {
  while (true) {
    try {
      call();
      return 0;
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) return error.num();
    }
  }
}

// noexcept: an error here is a bug, whose exception ends the process.
void SetOptions(const ZmqSocket::Options& options, zmq::socket_t* socket) noexcept {
  const bool is_router = options.kind == ZmqSocket::Kind::kRouter;
  socket->set(zmq::sockopt::linger, options.linger_ms);
  socket->set(zmq::sockopt::sndhwm, options.queued_messages_max);
  socket->set(zmq::sockopt::rcvhwm, kQueuedPerPeerMax);
  socket->set(zmq::sockopt::reconnect_ivl, kReconnectMs);
  socket->set(zmq::sockopt::reconnect_ivl_max, kReconnectMaxMs);
  socket->set(zmq::sockopt::connect_timeout, kDialMs);
  socket->set(zmq::sockopt::tcp_maxrt, kUnacknowledgedMs);
  socket->set(zmq::sockopt::tcp_keepalive, 1);
  socket->set(zmq::sockopt::tcp_keepalive_idle, kProbeAfterS);
  socket->set(zmq::sockopt::tcp_keepalive_intvl, kProbeIntervalS);
  socket->set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  socket->set(zmq::sockopt::backlog, kBacklog);
  socket->set(zmq::sockopt::immediate, false);
  socket->set(zmq::sockopt::maxmsgsize, kMessageBytesMax);
  if (is_router) {
    socket->set(zmq::sockopt::router_mandatory, true);
    socket->set(zmq::sockopt::router_handover, true);
  } else {
    socket->set(zmq::sockopt::routing_id, options.routing_id);
  }
}

// noexcept: as above; the keys have been checked.
void SetSecurity(const LineSecurity& security, zmq::socket_t* socket) noexcept {
  using Kind = LineSecurity::Kind;
  // Without its handler ZeroMQ would accept any key. The handler ends only with the context.
  if (security.is_server()) socket->set(zmq::sockopt::zap_domain, security.domain);
  switch (security.kind) {
    case Kind::kNone:
      return;
    case Kind::kCurveServer:
      socket->set(zmq::sockopt::curve_server, true);
      return socket->set(zmq::sockopt::curve_secretkey, security.pair.secret_key);
    case Kind::kCurveClient:
      socket->set(zmq::sockopt::curve_serverkey, security.server_key);
      socket->set(zmq::sockopt::curve_publickey, security.pair.public_key);
      return socket->set(zmq::sockopt::curve_secretkey, security.pair.secret_key);
    case Kind::kPlainServer:
      return socket->set(zmq::sockopt::plain_server, true);
    case Kind::kPlainClient:
      socket->set(zmq::sockopt::plain_username, EnumName(KeyRole::kMember));
      return socket->set(zmq::sockopt::plain_password, security.password);
  }
}

template <class Option>
auto Get(const zmq::socket_t& socket, Option option) {
  decltype(socket.get(option)) value{};
  PANDO_CHECK(ErrorFrom([&] { value = socket.get(option); }) == 0);
  return value;
}

// Uses the C function, because message_t::gets() throws if there is no such property.
std::string Property(zmq::message_t& part, const char* name) {
  const char* value = zmq_msg_gets(part.handle(), name);
  return value == nullptr ? "" : value;
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

Status OutOfSockets(int error) {
  return Unavailable(
      fmt::format("no further socket can be opened: {}; raise the limit of open files (ulimit -n) "
                  "or use fewer lanes",
                  zmq_strerror(error)));
}

Result<zmq::socket_t> Open(ZmqContext& context, zmq::socket_type type) {
  zmq::socket_t socket;
  const auto open = [&] { socket = zmq::socket_t(context.zmq_context(), type); };
  if (const int error = ErrorFrom(open); error != 0) return OutOfSockets(error);
  return socket;
}

// Keeps a frame's bytes alive while ZeroMQ uses them, and counts them as queued.
class QueuedFrame {
 public:
  QueuedFrame(const Blob& frame, QueuedBytes queued)
      : frame_(frame.keep_alive()),
        size_bytes_(static_cast<int64_t>(frame.size_bytes())),
        queued_(std::move(queued)) {
    *queued_ += size_bytes_;
  }
  ~QueuedFrame() { *queued_ -= size_bytes_; }
  QueuedFrame(const QueuedFrame&) = delete;

 private:
  std::shared_ptr<const void> frame_;
  int64_t size_bytes_;
  QueuedBytes queued_;
};

// Runs on an I/O thread.
void ReleaseFrame(void*, void* hint) {
  const std::unique_ptr<QueuedFrame> owner(static_cast<QueuedFrame*>(hint));
}

// Makes a message part that refers to the frame's bytes. noexcept: an error means no memory.
zmq::message_t Refer(const Blob& frame, const QueuedBytes& queued) noexcept {
  if (frame.size_bytes() == 0) return {};
  auto owner = std::make_unique<QueuedFrame>(frame, queued);
  // ZeroMQ takes a mutable pointer but only reads. From here on ReleaseFrame owns the owner.
  void* bytes = const_cast<std::byte*>(frame.bytes().data());
  return {bytes, frame.size_bytes(), ReleaseFrame, owner.release()};
}

// Returns the error's number, or 0. Never blocks.
int SendPart(zmq::message_t part, bool is_last, zmq::socket_t* socket) {
  const auto more = is_last ? zmq::send_flags::none : zmq::send_flags::sndmore;
  bool is_sent = false;
  const auto send = [&] {
    is_sent = socket->send(part, more | zmq::send_flags::dontwait).has_value();
  };
  const int error = ErrorFrom(send);
  return error == 0 && !is_sent ? EAGAIN : error;
}

// Returns false if there is none. Never blocks.
bool ReceivePart(zmq::socket_t& socket, zmq::message_t* part) {
  bool is_received = false;
  const auto receive = [&] {
    is_received = socket.recv(*part, zmq::recv_flags::dontwait).has_value();
  };
  return ErrorFrom(receive) == 0 && is_received;
}

constexpr size_t kIncarnationAt = 1;
constexpr size_t kLaneAt = kIncarnationAt + sizeof(uint64_t);
constexpr size_t kDialedAt = kLaneAt + sizeof(uint16_t);
constexpr size_t kRoutingIdBytes = kDialedAt + sizeof(uint64_t);
constexpr size_t kTokenBytes = 16;

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

std::optional<Dialer> ParseRoutingId(std::string_view routing_id, std::string* token) {
  if (routing_id.size() < kRoutingIdBytes) return std::nullopt;
  const std::string_view proof = routing_id.substr(kRoutingIdBytes);
  if (!proof.empty() && proof.size() != kTokenBytes) return std::nullopt;
  if (token != nullptr) *token = proof;
  return Dialer{static_cast<Channel>(routing_id[0]),
                Incarnation(ValueAt<uint64_t>(kIncarnationAt, routing_id)),
                ValueAt<uint16_t>(kLaneAt, routing_id)};
}

std::string WithoutToken(const std::string& routing_id) {
  return routing_id.substr(0, kRoutingIdBytes);
}

Result<ZmqSocket> ZmqSocket::Create(ZmqContext& context, const Options& options) {
  const bool is_router = options.kind == Kind::kRouter;
  const auto type = is_router ? zmq::socket_type::router : zmq::socket_type::dealer;
  PANDO_ASSIGN_OR_RETURN(zmq::socket_t socket, Open(context, type));
  SetOptions(options, &socket);
  SetSecurity(options.security, &socket);
  const int fd = Get(socket, zmq::sockopt::fd);
  return ZmqSocket(std::move(socket), options, fd);
}

// Sets the option only for IPv6 endpoints: with it, peers of IPv4 would have IPv6 addresses.
void ZmqSocket::ChooseFamily(const std::string& endpoint) {
  const bool is_ipv6 = endpoint.starts_with("tcp://[");
  PANDO_CHECK(ErrorFrom([&] { socket_.set(zmq::sockopt::ipv6, is_ipv6); }) == 0);
}

Result<std::string> ZmqSocket::Bind(const std::string& endpoint) {
  ChooseFamily(endpoint);
  const uid_t user = geteuid();
  PANDO_CHECK(zmq_setsockopt(socket_.handle(), ZMQ_IPC_FILTER_UID, &user, sizeof(user)) == 0);
  const int error = ErrorFrom([&] { socket_.bind(endpoint); });
  if (error != 0) return BindError(endpoint, error);
  return Get(socket_, zmq::sockopt::last_endpoint);
}

Status ZmqSocket::Connect(const std::string& endpoint) {
  ChooseFamily(endpoint);
  const int error = ErrorFrom([&] { socket_.connect(endpoint); });
  if (error == 0) return Status();
  return InvalidArgument(fmt::format("cannot dial {}: {}", endpoint, zmq_strerror(error)));
}

void ZmqSocket::Disconnect(const std::string& connected) {
  PANDO_CHECK(ErrorFrom([&] { socket_.disconnect(connected); }) == 0);
}

bool ZmqSocket::has_message() const {
  return (Get(socket_, zmq::sockopt::events) & ZMQ_POLLIN) != 0;
}

// Also removes the counters of peers that have read everything, once they may be half of all.
const QueuedBytes& ZmqSocket::QueuedTo(const std::string& routing_id) {
  constexpr size_t kSweptMin = 64;
  if (queued_.size() > 2 * std::max(swept_count_, kSweptMin)) {
    std::erase_if(queued_, [](const auto& entry) { return *entry.second == 0; });
    swept_count_ = queued_.size();
  }
  QueuedBytes& queued = queued_[routing_id];
  if (queued == nullptr) queued = std::make_shared<std::atomic<int64_t>>(0);
  return queued;
}

ZmqSocket::Sent ZmqSocket::Send(const std::string& routing_id, const Frames& frames) {
  const QueuedBytes& queued = QueuedTo(routing_id);
  if (*queued > queued_bytes_max_) return Sent::kQueueFull;
  if (kind_ == Kind::kRouter) {
    const int error = SendPart(zmq::message_t(routing_id), false, &socket_);
    if (error != 0) return error == EAGAIN ? Sent::kQueueFull : Sent::kUnroutable;
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    // Either this is the first part, or the connection ended in between and ZeroMQ discards the
    // message.
    if (SendPart(Refer(frames[i], queued), i + 1 == frames.size(), &socket_) != 0)
      return Sent::kQueueFull;
  }
  return Sent::kYes;
}

bool ZmqSocket::Receive(Received* received) {
  received->routing_id.clear();
  received->frames.clear();
  received->connection_fd = -1;
  received->user_id.clear();
  bool expects_routing_id = kind_ == Kind::kRouter;
  while (true) {
    // The part is on the heap and never moves, because short parts hold their bytes inside.
    auto part = std::make_shared<zmq::message_t>();
    // Only the first part can be missing: ZeroMQ delivers messages whole.
    if (!ReceivePart(socket_, part.get())) return false;
    const bool is_last = !part->more();
    // Uses the C function, because message_t::get() throws if there is no descriptor (−1).
    if (is_last && is_monitored_) received->connection_fd = zmq_msg_get(part->handle(), ZMQ_SRCFD);
    if (is_last && is_secured_) {
      received->user_id = Property(*part, "User-Id");
      received->address = Property(*part, "Peer-Address");
    }
    const std::string_view text = part->to_string_view();
    if (expects_routing_id) {
      received->routing_id = text;
      expects_routing_id = false;
    } else if (received->frames.size() <= kFramesPerMessageMax) {
      received->frames.emplace_back(std::as_bytes(std::span(text)), std::move(part));
    }
    if (is_last) return true;
  }
}

Result<std::unique_ptr<ZmqMonitor>> ZmqMonitor::Create(ZmqContext& context, ZmqSocket& socket) {
  // A pair of sockets in this process, named after the socket that lives longer.
  const std::string name = fmt::format("inproc://monitor-{}", socket.socket_.handle());
  PANDO_ASSIGN_OR_RETURN(zmq::socket_t events, Open(context, zmq::socket_type::pair));
  const int fd = Get(events, zmq::sockopt::fd);
  std::unique_ptr<ZmqMonitor> monitor(new ZmqMonitor(socket.socket_, std::move(events), fd));
  constexpr int kEvents =
      ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;
  if (zmq_socket_monitor(socket.socket_.handle(), name.c_str(), kEvents) != 0) {
    return OutOfSockets(zmq_errno());
  }
  const auto connect = [&] {
    monitor->events_.set(zmq::sockopt::linger, 0);
    // Without this, ZeroMQ's thread would wait for us to read.
    monitor->events_.set(zmq::sockopt::rcvhwm, 0);
    monitor->events_.connect(name);
  };
  PANDO_CHECK(ErrorFrom(connect) == 0);
  socket.is_monitored_ = true;
  return monitor;
}

// Ends the events first: an event that no socket reads would block ZeroMQ's thread.
ZmqMonitor::~ZmqMonitor() { PANDO_CHECK(zmq_socket_monitor(monitored_.handle(), nullptr, 0) == 0); }

// An event is two frames: its number (16 bits) and value (32 bits: the descriptor, 0 for a
// handshake), then the endpoint.
std::optional<ZmqMonitor::Event> ZmqMonitor::Receive() {
  zmq::message_t event, endpoint;
  if (!ReceivePart(events_, &event)) return std::nullopt;
  uint16_t number = 0;
  int32_t value = 0;
  PANDO_CHECK(event.size() == sizeof(number) + sizeof(value));
  std::memcpy(&number, event.data<char>(), sizeof(number));
  std::memcpy(&value, event.data<char>() + sizeof(number), sizeof(value));
  PANDO_CHECK(ReceivePart(events_, &endpoint));
  if (number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return Event{Event::Kind::kFinishedHandshake};
  return Event{number == ZMQ_EVENT_ACCEPTED ? Event::Kind::kAccepted : Event::Kind::kEnded, value};
}

// Only the handshake tells: a server that refuses a key ends the connection.
std::optional<bool> AreKeysAccepted(const std::string& endpoint, const Keys& keys) {
  constexpr int kPatienceMs = 2000;
  constexpr const char* kEvents = "inproc://handshakes";
  const auto kind = LineSecurity::Kind::kCurveClient;
  ZmqContext context(keys);
  Result<ZmqSocket> socket =
      ZmqSocket::Create(context, {.routing_id = HexText(NewIncarnation().value()),
                                  .security = {.kind = kind,
                                               .pair = keys.Of(keys.role()),
                                               .server_key = keys.Of(KeyRole::kAdmin).public_key}});
  Result<zmq::socket_t> events = Open(context, zmq::socket_type::pair);
  if (!socket.ok() || !events.ok()) return std::nullopt;
  void* monitored = socket->socket_.handle();
  constexpr int kAll = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                       ZMQ_EVENT_DISCONNECTED;
  if (zmq_socket_monitor(monitored, kEvents, kAll) != 0) return std::nullopt;
  zmq::message_t event;
  std::optional<bool> is_accepted;
  const auto listen = [&] {
    events->set(zmq::sockopt::rcvtimeo, kPatienceMs);
    events->connect(kEvents);
    socket->socket_.connect(endpoint);
    uint16_t number = 0;
    if (!events->recv(event)) return;
    std::memcpy(&number, event.data(), sizeof(number));
    is_accepted = number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
  };
  std::ignore = ErrorFrom(listen);
  zmq_socket_monitor(monitored, nullptr, 0);
  return is_accepted;
}

}  // namespace pando
