// SharedLink is the Unix connection between two transports of one host that read each other's
// shared memory (P42). It carries descriptors and, once both ends may name memory, messages. If it
// ends, the peer is gone. A packet wakes the peer's thread directly; a ZeroMQ message wakes two I/O
// threads first. Long messages, and messages for which there is no room now, use ZeroMQ. Only
// net/shm/shared_links uses it.
//
//   message  | from            | content
//   ---------+-----------------+------------------------------------------------------------------
//   hello    | connecting end  | its identity, layout version and random number
//   proof    | both            | with keys a token; from the accepting end its random number
//   segment  | owner of a pool | its next segment, with the descriptor; the reader's index
//   mapped   | reader          | the segment may be named from now on
//   retired  | both            | this end no longer reads from the link
//   packet   | both            | a message (net/shm/packet.h)
//
// Other messages come after both proofs (net/shm/link_proof.h).
//
// Each end shuts down its half when it reads no more: after the link is retired and the last blob
// is released. If the process ends, the kernel shuts it down. Only then does the other end reuse
// the reader's index. Threads: one.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/ids.h"
#include "common/unique_fd.h"
#include "net/shm/link_proof.h"
#include "net/shm/shared_reader.h"
#include "proto/codec.h"
#include "proto/messages.h"

namespace pando {

// The incarnation and lane at the other end.
using LinkPeer = std::pair<Incarnation, uint16_t>;
inline LinkPeer MakeLinkPeer(const PeerId& peer) { return {peer.incarnation, peer.lane}; }

// Returns whether a received message names shared memory, so that it needs Restore.
bool NamesSharedMemory(const Frames& frames);

class SharedLink {
 public:
  struct End {                         // one end of a link
    std::shared_ptr<SharedPool> pool;  // the memory that it shares; null: none
    OnMapped on_mapped = {};
    LinkProof::Sign sign = {};
  };
  // Listens on a name in the abstract namespace. Only this network namespace sees the name, and the
  // name ends with the process.
  static Result<UniqueFd> Listen(const LinkPeer& self);
  // Connects to `peer`. kInterrupted: a retry may succeed.
  static Result<std::unique_ptr<SharedLink>> Connect(const LinkPeer& self, const LinkPeer& peer,
                                                     const End& end);
  // Accepts the next process that connects to the listening socket. Null: there is none, or it
  // belongs to another user. kUnavailable: this process cannot get another descriptor.
  static Result<std::unique_ptr<SharedLink>> Accept(int listening_fd, const End& end);
  ~SharedLink();

  int fd() const { return fd_->get(); }
  // Empty until an accepted peer has sent its hello, and only a claim until the peer has proved it.
  const std::optional<LinkPeer>& peer() const { return peer_; }
  // Sends this end's proof if it is due and the peer's key is known.
  void Prove();

  // Reads the available messages, at most a bounded number at a time.
  void Receive();
  // Returns whether the other end reads no more. Its earlier messages may still be waiting here.
  bool is_closed() const { return is_closed_; }
  bool is_over() const { return is_closed_ || reader_ == nullptr; }
  bool is_usable() const { return proof_.is_proven() && !is_over(); }
  // The reason why the link is not used any more, if the peer caused it.
  const std::string& complaint() const { return complaint_; }
  // Ends the use of the link: nothing more is sent or received on it.
  void Retire();
  bool shares() const { return mapped_count_ > 0; }  // payloads are shared on this link

  // Sends a message. Never blocks. Returns false if it must use ZeroMQ, perhaps only this time.
  bool Send(const Frames& message);
  // Takes the next message that was read; returns false if there is none.
  bool Take(Frames* message);
  bool has_message() const { return !messages_.empty(); }

  // Replaces each frame that the peer can read in place by a reference to it.
  void Share(Frames* frames);
  enum class Restored { kWhole, kOvertaken, kCorrupt };
  // REQUIRES: NamesSharedMemory(*frames).
  Restored Restore(Frames* frames);

 private:
  struct Control;
  SharedLink(UniqueFd fd, const End& end, std::optional<LinkPeer> peer = {});
  bool ReceiveOne();
  void OnControl(const Control& control, UniqueFd descriptor);
  void OnSegment(const Control& control, UniqueFd descriptor);
  void OnPacket(const Blob& packet, UniqueFd descriptor);
  bool SendControl(const Control& control, int descriptor = -1);
  void AnnounceSegments();
  void TellMapped();  // REQUIRES: not retired
  void TellRetired();
  std::optional<SharedReference> Name(const Blob& frame);
  void Break(std::string complaint);

  std::shared_ptr<UniqueFd> fd_;
  std::shared_ptr<SharedPool> pool_;
  std::optional<LinkPeer> peer_;
  LinkProof proof_;
  std::unique_ptr<SharedReader> reader_;  // of the peer's pool; null: retired
  std::optional<uint32_t> our_reader_;    // the peer's index in our pool
  uint32_t announced_count_ = 0;          // our segments that were sent to the peer
  uint32_t mapped_count_ = 0;             // segments that the peer has mapped
  uint32_t told_count_ = 0;               // the peer's segments that it knows are mapped
  bool has_told_retired_ = false;
  std::deque<Frames> messages_;
  bool is_closed_ = false;
  std::string complaint_;
};

}  // namespace pando
