// Transport connects one protocol party (a server lane, a worker's session, the scheduler, a
// heartbeat sender) with its peers. It sends and receives envelopes by PeerId. The protocol repeats
// lost messages (P10).
//
// A party that is dialed binds one ROUTER. A party that dials has a DEALER per peer, whose routing
// id names the dialer (net/zmq/zmq_socket.h).
//
// A transport drops a message that does not decode, whose claimed sender does not match the routing
// id of its connection, or that the key of its connection does not permit (P44). It also drops a
// message that claims to come from the scheduler but did not arrive on the connection dialed to the
// scheduler. It counts all of them.
//
// With ShareMemory, payloads in the given pool go to peers of this host without a copy. The message
// names them instead of their bytes, and bypasses ZeroMQ (P42, net/shm/shared_link.h).
// Threads: one; a transport may be handed to another thread while no thread uses it.
#pragma once

#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "net/address.h"
#include "net/connection_watch.h"
#include "net/host_names.h"
#include "net/line_guard.h"
#include "net/registration_limit.h"
#include "net/scheduler_lines.h"
#include "net/shm/shared_links.h"
#include "net/zmq/zmq_context.h"
#include "net/zmq/zmq_socket.h"
#include "proto/messages.h"
#include "proto/outbox.h"

namespace pando {

// PeerWarnings warns of each peer whose messages are dropped, at most once a minute. The number of
// peers is bounded, to bound the log.
class PeerWarnings {
 public:
  using OnWarning = std::function<void(const std::string& text)>;
  explicit PeerWarnings(OnWarning on_warning) : on_warning_(std::move(on_warning)) {}
  // `endpoint` is the peer's, if we dialed it; if it is empty, `routing_id` names the peer that
  // dialed us. `address` is where the peer is, if known.
  void Warn(const std::string& endpoint, const std::string& routing_id, const std::string& address,
            const std::string& why);

 private:
  OnWarning on_warning_;  // may be null
  std::map<std::string, Micros> warned_at_;
};

class Transport : public Outbox {
 public:
  struct Options {
    Channel channel = Channel::kData;
    bool insecure = false;  // binding beyond this machine without keys was requested
    int linger_ms = 500;    // how long sent messages outlive the transport
    // The bound per dialed peer. Further messages are dropped, so that an absent peer holds no more
    // memory. A ROUTER has the same bound for each peer that dialed it.
    int queued_messages_max = kQueuedPerPeerMax;
    int64_t queued_bytes_max = kQueuedBytesMax;  // the bound in bytes, without the last message
    // Added to the ports at which schedulers are known to listen (ZmqContext::schedulers).
    uint16_t scheduler_port_offset = 0;
    LookUp look_up = FindAddress;  // for host names of dialed peers; on any thread
    // How often lost shared-memory links to dialed peers are connected again.
    Micros link_again = std::chrono::seconds(1);
    // The transport's thread calls it once for each peer whose messages are dropped, and when
    // connections cannot be accepted.
    std::function<void(const std::string& text)> on_warning;
    // Receive calls it, after the last message, when a peer that dialed us has lost its connection.
    // Its process may have ended, or it may dial again. A peer with several connections may be
    // reported more than once.
    std::function<void(Incarnation peer)> on_disconnect;
    // Receive calls it when a message does not decode and the connection proves which process sent
    // it.
    std::function<void(Incarnation peer, const std::string& what)> on_nonsense;
  };
  struct Counters {
    uint64_t sent = 0;
    uint64_t sent_by_link = 0;  // of these, by a shared-memory link
    uint64_t received = 0;
    uint64_t unroutable = 0;  // no connection to the receiver
    uint64_t queue_full = 0;
    uint64_t undecodable = 0;
    uint64_t misattributed =
        0;                      // the claimed sender did not send it, or its key does not permit it
    uint64_t bad_views = 0;     // forged, or naming lanes that cannot be dialed
    uint64_t isolated = 0;      // dropped because the context was isolated
    uint64_t rate_limited = 0;  // registrations of new processes
    uint64_t turned_away = 0;   // connections that HandshakeWatch ended
    uint64_t overtaken = 0;     // the message's shared memory was rewritten or is unreadable
    // Payloads of 16 KiB and more that went by ZeroMQ, although peers of one host could share them:
    // sent to such peers, and received from dialed ones.
    uint64_t copied_on_host_bytes = 0;
  };
  struct SharedMemory {
    std::shared_ptr<SharedPool> pool;  // the pool in which payloads are made
    bool is_required = false;          // sharing_failure() reports a peer that shares none
    OnMapped on_mapped = {};           // called on the transport's thread
    // Gets the reason for the first peer at a loopback or ipc endpoint that shares no memory, and
    // for the first peer that dialed us and cannot share.
    std::function<void(const std::string& text)> on_note;
    void NoteUnshared(const std::string& peer, const std::string& why);
  };
  // The numbers of dialed connections, by what carries their payloads.
  struct LineCounts {
    uint32_t tcp = 0;
    uint32_t ipc = 0;
    uint32_t shm = 0;
  };

  // `context` outlives the transport. The transport uses the incarnation and lane of `self`, and
  // whether it is the scheduler.
  Transport(ZmqContext& context, PeerId self, Options options);

  // Lets peers dial us at "tcp://HOST:PORT" (port 0: any free one) or "ipc://PATH". Returns the
  // endpoint with the port filled in. With keys, tcp connections are secured.  REQUIRES: not bound
  // yet.
  Result<std::string> Bind(const std::string& endpoint);
  // Stops receiving from inbound peers.  REQUIRES: it is bound.
  void Unbind();

  // Connects now or as soon as the peer exists, and again whenever the connection is lost. The
  // scheduler is dialed with incarnation 0, which means any, and lane 0. If it has several
  // endpoints (SplitEndpoints), or the context learns of others, all are dialed. Messages go to the
  // one that sent the last message, or to all after kSchedulerSilence. A message for a lane from
  // kStandbyLane on goes to that one alone. Dialing a peer again does nothing; at another endpoint
  // it replaces the connection. With keys, a peer over tcp must show `public_key`, and the
  // scheduler the admin's key.
  Status Dial(PeerId peer, const std::string& endpoint, const std::string& public_key = "");
  static constexpr Micros kSchedulerSilence = std::chrono::milliseconds(1500);
  // Makes later tcp connections, except those to the scheduler, use clear text (run.encrypt). Binds
  // a bound socket again, and returns an error if that fails.
  Status SpeakInClear();
  LineGuard& guard() { return guard_; }
  void HangUp(PeerId peer);
  // Makes this party another incarnation. Closes every dialed connection; bound endpoints stay.
  void SpeakAs(PeerId self);
  std::vector<PeerId> dialed() const;

  // Makes the transport share memory with the peers that can: those dialed from now on, and those
  // that dial us. An error says why no peer can. Call it at most once.
  Status ShareMemory(SharedMemory options);
  // The shared pool; null if there is none.
  const std::shared_ptr<SharedPool>& shared_pool() const { return shared_memory_.pool; }
  // An error if memory must be shared and a peer that answers shares none.
  const Status& sharing_failure() const { return sharing_failure_; }
  LineCounts CountLines() const;

  // Sends to the dialed peer, otherwise by routing id to a peer that dialed us. Never blocks or
  // fails: a message that cannot be sent is dropped and counted.
  void Send(Envelope envelope) override;

  // Takes the next message. Returns false if there was none at the last Wait. Never blocks.
  bool Receive(Envelope* envelope);

  // Returns whether a message is already available, which no descriptor will report again. Receive
  // may have returned false nevertheless, after many messages that it dropped.
  bool HasMessage();

  // Returns when a message or one of `fds` may be readable, at `deadline` (common/clock.h; kNever:
  // no deadline), or on a signal.
  void Wait(Micros deadline, std::span<const int> fds = {});

  const Counters& counters() const { return counters_; }
  void OnBadView(const PeerId& from, const std::string& why) {
    ++counters_.bad_views;
    warnings_.Warn("node " + std::to_string(from.node.value()), "", "", why);
  }

 private:
  struct Line {  // one socket and, if we dialed it, its peer
    ZmqSocket socket;
    std::optional<PeerId> peer;
    std::string endpoint;
    Endpoint parsed = {};        // of a dialed peer
    std::string connected = {};  // the endpoint in numbers; empty: not connected yet
    Micros heard_at{0};          // when the dialed peer last sent a message
    Micros answered_at{0};       // the same; 0: never since it was dialed
    bool is_drained = false;     // no message waits unless its descriptor reports more
    bool is_local = false;       // the endpoint is on this machine
    // `address` is the host's, and none for ipc. A scheduler's line stays unconnected while another
    // of the lines has its address.
    Status ConnectTo(const std::string& address, const auto& lines);
    std::string DialedEndpoint() const { return peer ? endpoint : ""; }
    LineKind kind() const { return endpoint.starts_with("ipc:") ? LineKind::kIpc : LineKind::kTcp; }
    bool is_secured = false;    // connections have keys
    bool has_shared = false;    // the peer has shared memory at least once
    std::string unshared = {};  // why no memory is shared, after a try
  };
  using Lines = std::map<std::optional<PeerId>, Line>;  // the ROUTER is at nullopt

  void ReceiveEvents(std::span<const pollfd> polled, std::span<const pollfd> links_polled);
  bool ReceiveFrom(Line& line, Envelope* envelope);
  bool ReceiveByLine(Envelope* envelope);
  bool ReceiveByLink(Envelope* envelope);
  bool Accept(Line& line, ZmqSocket::Received& received, Envelope* envelope);
  void RedialNamed();
  void Link(Line& line);
  void LinkAgain();
  void NoteSharing();
  bool Restore(const Line& line, ZmqSocket::Received* received);
  void JudgeSharing(const Line& line);

  ZmqContext& context_;
  PeerId self_;
  const Options options_;
  Lines lines_;
  ConnectionWatch watch_;  // watches the ROUTER
  HostNames names_;
  bool has_names_ = false;         // a peer was dialed by name
  std::optional<PeerId> reading_;  // key of the connection that Receive reads next
  unsigned burst_ = 0;             // messages taken from that connection in a row
  unsigned link_burst_ = 0;        // calls of Receive in a row that read links
  PeerWarnings warnings_;
  LineGuard guard_;
  SchedulerLines schedulers_;
  RegistrationLimit registrations_;
  std::unique_ptr<SharedLinks> links_;  // null: memory is not shared
  SharedMemory shared_memory_;
  Status sharing_failure_;
  Micros link_again_at_{0};
  Counters counters_;
};

}  // namespace pando
