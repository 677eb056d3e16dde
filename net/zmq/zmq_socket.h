// ZmqSocket is one ROUTER or DEALER with the options that the protocol needs. It moves frames
// without copying them. Only net/transport and net/zmq/handshake_watch use it.
//
// On the wire a message is its frames, frame 0 first. A ROUTER adds the peer's routing id in front
// of received messages, and removes it from sent ones. Threads: one at a time.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <zmq.hpp>

#include "common/result.h"
#include "net/zmq/zmq_context.h"
#include "proto/codec.h"

namespace pando {

// The most messages queued for a peer that does not take them; further ones are dropped. A peer
// that sends faster than we read is held back by its TCP window. The protocol's own bounds (I6)
// stay far below: a worker has one reply per shard in flight, gathered into few messages.
inline constexpr int kQueuedPerPeerMax = 1000;

// The most bytes queued for such a peer, beside the last message. ZeroMQ only counts messages.
inline constexpr int64_t kQueuedBytesMax = int64_t{1} << 30;

// A peer whose handshake takes longer is dropped.
inline constexpr int kHandshakeMs = 5000;

// A routing id is the name under which a ROUTER knows a connection that was dialed to it. It names
// the dialer, so that the ROUTER can answer an envelope's sender without a table:
//
//   byte 0       the channel ('d' data, 'h' heartbeat): not 0, which ZeroMQ reserves
//   bytes 1-8    the dialer's incarnation, little-endian
//   bytes 9-10   the dialer's lane, little-endian
//   bytes 11-18  the incarnation dialed, little-endian (the scheduler: 0)
//   bytes 19-34  with keys: the LineToken of the bytes before
//
// If two connections have one routing id, ZeroMQ keeps the newer one and leaves the other open and
// silent. A connection to an earlier incarnation remains for a while and dials the endpoint again.
// The last field keeps it from replacing the connection to this incarnation.
struct Dialer {
  Channel channel = Channel::kData;
  Incarnation incarnation;
  uint16_t lane = 0;
  bool operator==(const Dialer&) const = default;
};

// Makes it without a token. The scheduler is dialed at its endpoint, in any incarnation.
std::string RoutingId(const Dialer& dialer, const PeerId& dialed);

// Returns nullopt if it is not one of ours. `token` may be null; it becomes empty without one.
std::optional<Dialer> ParseRoutingId(std::string_view routing_id, std::string* token = nullptr);
// Returns the part of a routing id from which its token is made: all before the token.
std::string WithoutToken(const std::string& routing_id);

// How a socket's TCP connections are secured (P44).
struct LineSecurity {
  enum class Kind : uint8_t { kNone, kCurveServer, kCurveClient, kPlainServer, kPlainClient };
  Kind kind = Kind::kNone;
  std::string domain = {};      // servers: one of zap_handler.h
  KeyPair pair = {};            // kCurve...: the pair that is shown
  std::string server_key = {};  // kCurveClient: the key that the server must show
  std::string password = {};    // kPlainClient
  bool is_server() const { return kind == Kind::kCurveServer || kind == Kind::kPlainServer; }
};

// The bytes of messages that are not sent yet. ZeroMQ's threads count it down.
using QueuedBytes = std::shared_ptr<std::atomic<int64_t>>;

class ZmqSocket {
 public:
  enum class Kind { kRouter, kDealer };
  struct Options {
    Kind kind = Kind::kDealer;
    std::string routing_id;                       // kDealer: its name at the peer's ROUTER
    int linger_ms = 0;                            // how long sent messages outlive the socket
    int queued_messages_max = kQueuedPerPeerMax;  // per peer; further ones are dropped
    int64_t queued_bytes_max = kQueuedBytesMax;   // the same in bytes
    LineSecurity security = {};
  };
  static Result<ZmqSocket> Create(ZmqContext& context, const Options& options);

  // Returns the endpoint with what the system chose filled in. On ipc only processes of this user
  // are accepted.
  Result<std::string> Bind(const std::string& endpoint);
  Status Connect(const std::string& endpoint);  // tcp: an address; names are looked up elsewhere
  void Disconnect(const std::string& connected);

  enum class Sent { kYes, kUnroutable, kQueueFull };
  // `routing_id` is the peer's; only for kRouter. Never blocks. The frames' owners are released on
  // one of ZeroMQ's threads once the bytes have left.
  Sent Send(const std::string& routing_id, const Frames& frames);

  struct Received {
    std::string routing_id;   // kRouter: the sender's
    Frames frames;            // too many frames are cut to kFramesPerMessageMax + 1
    int connection_fd = -1;   // the connection's; may be reused after its end
    std::string user_id;      // secured server: the role whose key was accepted
    std::string address;      // secured server: the address of the sender
    bool is_of_user = false;  // it came by memory that a process of this user shares
  };
  // Returns false if there is none. Never blocks.
  bool Receive(Received* received);

  // Becomes readable when a message has come since Receive, or has_message, last returned false. A
  // Send in between may have consumed the notification.
  int fd() const { return fd_; }
  bool has_message() const;

 private:
  friend class ZmqMonitor;
  friend std::optional<bool> AreKeysAccepted(const std::string& endpoint, const Keys& keys);
  ZmqSocket(zmq::socket_t socket, const Options& options, int fd)
      : socket_(std::move(socket)),
        kind_(options.kind),
        queued_bytes_max_(options.queued_bytes_max),
        is_secured_(options.security.is_server()),
        fd_(fd) {}
  const QueuedBytes& QueuedTo(const std::string& routing_id);
  void ChooseFamily(const std::string& endpoint);

  zmq::socket_t socket_;
  Kind kind_;
  int64_t queued_bytes_max_;
  std::map<std::string, QueuedBytes> queued_;  // by routing id; a DEALER's peer has none
  size_t swept_count_ = 0;                     // entries after the last sweep
  bool is_secured_;                            // as a server
  int fd_;
  bool is_monitored_ = false;
};

// Returns whether a scheduler at this tcp address accepts a process with these keys; none if it has
// not answered within two seconds. Threads: any.
std::optional<bool> AreKeysAccepted(const std::string& endpoint, const Keys& keys);

}  // namespace pando
