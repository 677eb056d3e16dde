// SharedLinks: with whom of its peers a transport shares memory (P42). Used by net/transport alone.
//
// A party that is dialed listens on a Unix socket named after its incarnation and lane; one that
// dials connects to it. Where that cannot be, payloads go as bytes. A link that is hung up on is
// kept until the peer has closed it: until then it may read.
// Threads: one.
#pragma once

#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/shared_link.h"
#include "proto/outbox.h"

namespace pando {

class SharedLinks {
 public:
  static constexpr size_t kLinksMax = 2 * kSharedReadersMax;  // more get bytes

  explicit SharedLinks(std::shared_ptr<SharedPool> pool) : pool_(std::move(pool)) {}

  // Lets others connect to us by this name.
  Status Listen(const LinkPeer& self);
  void StopListening() { listener_ = UniqueFd(); }

  // Links with a peer that is dialed.  Returns why it cannot be.
  Status Connect(const LinkPeer& self, const LinkPeer& peer);
  void HangUp(const LinkPeer& peer);
  void HangUpAccepted();  // what peers have dialed
  void HangUpAll();

  // A line is the peer, and whether we dialed it: two lanes may each have dialed the other.
  struct Line {
    LinkPeer peer;
    bool is_dialed = false;
    auto operator<=>(const Line&) const = default;
  };
  // Never blocks.  False: it has to go another way.
  bool Send(const Line& line, const Frames& message);
  // The next message that came, and by which line; false: none.
  bool Take(Line* line, Frames* message);
  bool has_message() const;

  void Share(const Line& line, Frames* frames);
  SharedLink::Restored Restore(const Line& line, Frames* frames);
  bool shares(const Line& line) const;
  std::vector<LinkPeer> connected() const;

  // What to poll for reading, appended, and what to call with these afterwards: reads what of it
  // can be read. False: nothing could.
  void AppendFds(std::vector<pollfd>* polled) const;
  bool Receive(std::span<const pollfd> polled);

  // A link that ended before memory was shared by it, and why.
  struct Refusal {
    Line line;
    std::string why;
  };
  std::vector<Refusal> TakeRefusals() { return std::exchange(refusals_, {}); }

 private:
  SharedLink* Find(const Line& line) const;
  void Admit();
  void NameAdmitted();
  void Retire(std::unique_ptr<SharedLink> link);
  void NoteRefusal(const Line& line, const SharedLink& link);
  size_t link_count() const { return lines_.size() + unnamed_.size() + retired_.size(); }

  const std::shared_ptr<SharedPool> pool_;
  UniqueFd listener_;
  std::map<Line, std::unique_ptr<SharedLink>> lines_;
  std::vector<std::unique_ptr<SharedLink>> unnamed_;  // accepted, and yet to say who they are
  std::vector<std::unique_ptr<SharedLink>> retired_;  // until the peer has closed them
  std::vector<Refusal> refusals_;
  Line taken_;  // from which the last message was taken
};

}  // namespace pando
