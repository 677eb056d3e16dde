// SharedLink: the Unix connection of two transports of one host that read each other's shared
// memory (P42). It carries descriptors, the kernel's word that a peer is gone and, once both may
// name memory, the messages: a packet wakes the peer's thread itself, where a message of ZeroMQ's
// wakes two I/O threads before. Those that are long, or for which there is no room now, go by
// ZeroMQ. Used by net/shared_links alone.
//
//   message  | from            | says
//   ---------+-----------------+------------------------------------------------------------------
//   hello    | who connected   | who it is, and the layout that it knows
//   segment  | a pool's owner  | its next segment, with the descriptor; the index of your words
//   mapped   | the other       | that segment may be named to me from now on
//   retired  | both            | I hear nothing by this link any more
//   packet   | both            | a message (net/packet.h)
//
// Each end tells the other that it reads nothing any more by shutting down its half: when the link
// is retired and the last blob is gone, or by the kernel when the process ends. Then, not before,
// the other end takes its reader's index back.
// Threads: one.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/ids.h"
#include "common/unique_fd.h"
#include "net/shared_pool.h"
#include "net/shared_reader.h"
#include "proto/codec.h"
#include "proto/messages.h"

namespace pando {

// Who is at the other end: incarnation and lane.
using LinkPeer = std::pair<Incarnation, uint16_t>;
inline LinkPeer LinkPeerOf(const PeerId& peer) { return {peer.incarnation, peer.lane}; }

// Whether a received message names shared memory: then it is Restore's.
bool NamesSharedMemory(const Frames& frames);

class SharedLink {
 public:
  // A name in the abstract namespace: of this network namespace alone, gone with its process.
  // `pool` is what we share, and may be null.
  static Result<UniqueFd> Listen(const LinkPeer& self);
  // kInterrupted: it may be tried again.
  static Result<std::unique_ptr<SharedLink>> Connect(const LinkPeer& self, const LinkPeer& peer,
                                                     std::shared_ptr<SharedPool> pool);
  // Who connects to the listening socket; null: nobody does, or a stranger.  kUnavailable: this
  // process can have no further descriptor.
  static Result<std::unique_ptr<SharedLink>> Accept(int listening_fd,
                                                    std::shared_ptr<SharedPool> pool);
  ~SharedLink();

  int fd() const { return fd_->get(); }
  // Empty until an accepted one has said it.
  const std::optional<LinkPeer>& peer() const { return peer_; }

  // Reads what is there: some messages of it, if there are many.
  void Receive();
  // The other end reads nothing any more. What it has said before may still be here to be taken.
  bool is_closed() const { return is_closed_; }
  bool is_usable() const { return peer_.has_value() && !is_closed_ && reader_ != nullptr; }
  // Why it is not used any more, if that is the peer's fault.
  const std::string& complaint() const { return complaint_; }
  // From now on nothing is sent or received by it.
  void Retire();
  bool shares() const { return mapped_count_ > 0; }  // payloads go by it

  // Never blocks.  False: it has to go another way, perhaps only now.
  bool Send(const Frames& message);
  // The next message that was read; false: none.
  bool Take(Frames* message);
  bool has_message() const { return !messages_.empty(); }

  // Frames that the peer can read where they lie are named instead.
  void Share(Frames* frames);
  enum class Restored { kWhole, kOvertaken, kCorrupt };
  // REQUIRES: NamesSharedMemory(*frames).
  Restored Restore(Frames* frames);

 private:
  struct Control;
  SharedLink(UniqueFd fd, std::shared_ptr<SharedPool> pool);
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
  std::unique_ptr<SharedReader> reader_;  // of the peer's pool; null: retired
  std::optional<uint32_t> our_reader_;    // the peer's index in our pool
  uint32_t announced_count_ = 0;          // segments of ours
  uint32_t mapped_count_ = 0;             // that the peer has mapped
  uint32_t told_count_ = 0;               // segments of the peer's that it knows to be mapped
  bool has_told_retired_ = false;
  std::deque<Frames> messages_;
  bool is_closed_ = false;
  std::string complaint_;
};

}  // namespace pando
