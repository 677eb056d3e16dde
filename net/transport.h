// Transport: one protocol party's way to its peers (a server lane, a worker's session, the
// scheduler, a heartbeat sender). Sends and receives envelopes by PeerId; whatever is lost is
// repeated by the protocol (P10).
//
// A party that is dialed binds one ROUTER; a party that dials has a DEALER per peer, whose routing
// id says who dials (net/routing_id.h).
//
// A message whose claimed sender does not fit the routing id it came by is dropped; so is one that
// claims to be the scheduler's and came by another line than one dialed to it, and what is not a
// message. All are counted.
//
// With ShareMemory, payloads that lie in the given pool go to peers of this host without a copy:
// the message names them in place of their bytes, and goes past ZeroMQ itself (P42,
// net/shared_link.h). Threads: one; a transport may be handed to another thread while nobody uses
// it.
#pragma once

#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "net/routing_id.h"
#include "net/shared_links.h"
#include "net/zmq_context.h"
#include "net/zmq_socket.h"
#include "proto/messages.h"
#include "proto/outbox.h"

namespace pando {

class Transport {
 public:
  struct Options {
    Channel channel = Channel::kData;
    bool insecure = false;  // binding beyond this machine was asked for
    int linger_ms = 500;    // how long sent messages outlive the transport
    // Per dialed peer; beyond it messages are dropped, so that one that is away holds no more. A
    // ROUTER has the same bound for each that dialed it.
    int queued_messages_max = kQueuedPerPeerMax;
    // A dialed peer that shares memory and whose link was lost is linked with again after so long.
    Micros link_again = std::chrono::seconds(1);
    // Told, on the transport's thread, once for each peer whose messages are dropped.
    std::function<void(const std::string& text)> on_warning;
    // Told, on the transport's thread in Receive or Wait, of a peer that had dialed us and whose
    // connection is lost: its process may have ended, or it dials again. One that has more than one
    // connection may be told of more than once.
    std::function<void(Incarnation peer)> on_disconnect;
  };
  struct Counters {
    uint64_t sent = 0;
    uint64_t sent_by_link = 0;  // of those: past ZeroMQ, to who shares memory with us
    uint64_t received = 0;
    uint64_t unroutable = 0;  // no connection to the receiver
    uint64_t queue_full = 0;
    uint64_t undecodable = 0;
    uint64_t misattributed = 0;  // the sender claimed is not who sent it
    uint64_t isolated = 0;       // neither sent nor received, for the context was isolated
    uint64_t overtaken = 0;      // named shared memory that is written again, or cannot be read
  };
  struct SharedMemory {
    std::shared_ptr<SharedPool> pool;  // what payloads are made in
    bool is_required = false;          // sharing_failure() tells of a peer that shares none
    // Told of the first peer at a loopback or ipc endpoint that shares no memory with us, and of
    // the first that dialed us and cannot: why.
    std::function<void(const std::string& text)> on_note;
  };
  // Lines that were dialed, by what carries their payloads.
  struct LineCounts {
    uint32_t tcp = 0;
    uint32_t ipc = 0;
    uint32_t shm = 0;
  };

  // `context` outlives the transport. Of `self` incarnation, lane and whether it is the scheduler
  // matter.
  Transport(ZmqContext& context, PeerId self, Options options);

  // Lets peers dial us at "tcp://HOST:PORT" (port 0: any free one) or "ipc://PATH". Returns the
  // endpoint with the port filled in.  REQUIRES: not bound yet.
  Result<std::string> Bind(const std::string& endpoint);
  // Who has dialed us is heard no more.  REQUIRES: it is bound.
  void Unbind();

  // Connects, now or as soon as the peer is there, and again whenever the connection is lost. The
  // scheduler is dialed with incarnation 0: whoever lives there. Dialing a peer again is a no-op,
  // at another endpoint it replaces the connection.
  Status Dial(PeerId peer, const std::string& endpoint);
  void HangUp(PeerId peer);
  // From here on this party is another life: every dialed line is hung up, what is bound stays.
  void SpeakAs(PeerId self);
  std::vector<PeerId> dialed() const;

  // From now on memory is shared with whom it can be, of those that are dialed from here on and of
  // those that dial us.  An error says why it can be with nobody. Called at most once.
  Status ShareMemory(SharedMemory options);
  // The pool that is shared; null: none is.
  const std::shared_ptr<SharedPool>& shared_pool() const { return shared_memory_.pool; }
  // Not OK where memory must be shared, and a peer that answers shares none: why.
  const Status& sharing_failure() const { return sharing_failure_; }
  LineCounts CountLines() const;

  // To the dialed peer, else by routing id to who dialed us. Never blocks and never fails: what
  // cannot go is dropped and counted.
  void Send(const Envelope& envelope);

  // The next message.  False if there was none, at the last Wait; never blocks.
  bool Receive(Envelope* envelope);

  // Returns when a message or one of `fds` may be readable, at `deadline` (net/clock.h; kNever: no
  // deadline), or on a signal.
  void Wait(Micros deadline, std::span<const int> fds = {});

  const Counters& counters() const { return counters_; }

 private:
  struct Line {  // one socket and, if we dialed it, to whom
    ZmqSocket socket;
    std::optional<PeerId> peer;
    std::string endpoint;
    bool is_drained = false;    // nothing is there unless its descriptor says so
    bool is_local = false;      // the endpoint is one of this machine
    bool has_shared = false;    // memory, at some time
    std::string unshared = {};  // why no memory is shared, once that was tried
  };
  using Lines = std::map<std::optional<PeerId>, Line>;  // the ROUTER is at nullopt

  Line* FindDialed(PeerId peer);
  bool HasMessage();
  void ReceiveEvents(std::span<const pollfd> polled, std::span<const pollfd> links_polled);
  bool ReceiveFrom(Line& line, Envelope* envelope);
  bool ReceiveByLine(Envelope* envelope);
  bool ReceiveByLink(Envelope* envelope);
  bool Accept(const Line& line, ZmqSocket::Received& received, Envelope* envelope);
  void NoteConnection(int connection_fd, Incarnation peer);
  void TellDisconnects();
  // For people: of who sent it.
  static std::string NameOf(const Line& line, const ZmqSocket::Received& received);
  void Warn(const std::string& peer, const std::string& why);
  bool LinksWith(const PeerId& peer) const;
  void Link(Line& line);
  void LinkAgain();
  void NoteSharing();
  void NoteUnshared(const std::string& peer, const std::string& why);
  bool Restore(const Line& line, ZmqSocket::Received* received);
  void JudgeSharing(const Line& line);
  LinkPeer own_name() const { return {self_.incarnation, self_.lane}; }

  ZmqContext& context_;
  PeerId self_;
  const Options options_;
  Lines lines_;
  std::unique_ptr<ZmqMonitor> monitor_;     // of the ROUTER, where Options::on_disconnect is set
  std::map<int, Incarnation> connections_;  // the ROUTER's, by descriptor
  std::optional<PeerId> reading_;           // key of the line that Receive reads next
  unsigned burst_ = 0;                      // messages taken from it in a row
  unsigned link_burst_ = 0;                 // calls of Receive in a row that were the links' turn
  std::set<std::string> warned_;
  std::unique_ptr<SharedLinks> links_;  // null: no memory is shared
  SharedMemory shared_memory_;
  Status sharing_failure_;
  Micros link_again_at_{0};
  Counters counters_;
};

}  // namespace pando
