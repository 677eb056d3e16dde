// SharedLinks keeps the links of a transport that shares memory (P42). Only net/transport uses it.
//
// A party that is dialed listens on a Unix socket named after its incarnation and lane. A
// party that dials connects to it. If this fails, payloads travel as bytes. A link that this
// end closes is kept until the peer has closed it, because the peer may still read. Threads:
// one.
#pragma once

#include <poll.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/shm/shared_link.h"

namespace pando {

class SharedLinks {
 public:
  static constexpr size_t kLinksMax = 2 * kSharedReadersMax;  // further peers get bytes

  explicit SharedLinks(SharedLink::End end) : end_(std::move(end)) {}

  // Lets peers connect under this name.
  Status Listen(const LinkPeer& self);
  void StopListening() { listener_ = UniqueFd(); }

  // Connects to a dialed peer. An error says why that is impossible.
  Status Connect(const LinkPeer& self, const LinkPeer& peer);
  void HangUp(const LinkPeer& peer);
  void HangUpAccepted();  // the links that peers have dialed
  void HangUpAll();

  // A line names a peer and whether this end dialed it, since two lanes may dial each other.
  struct Line {
    LinkPeer peer;
    bool is_dialed = false;
    auto operator<=>(const Line&) const = default;
  };
  SharedLink* Find(const Line& line) const;  // null if there is none
  // Takes the next message and its line; returns false if there is none.
  bool Take(Line* line, Frames* message);
  bool has_message() const;

  std::vector<LinkPeer> connected() const;

  // Proves this process to the peers whose keys are now known.
  void Prove();

  // AppendFds appends the descriptors to poll for reading. Receive gets them back after the poll
  // and reads what is available. It returns false if nothing was available.
  void AppendFds(std::vector<pollfd>* polled) const;
  bool Receive(std::span<const pollfd> polled);

  // A link that ended before it shared memory, and the reason.
  struct Refusal {
    Line line;
    std::string why;
  };
  std::vector<Refusal> TakeRefusals() { return std::exchange(refusals_, {}); }

 private:
  void Admit();
  void NameAdmitted();
  void Retire(std::unique_ptr<SharedLink> link);
  template <class IsOver>
  void RetireIf(IsOver is_over);
  void NoteRefusal(const Line& line, const SharedLink& link);
  size_t link_count() const { return lines_.size() + unnamed_.size() + retired_.size(); }

  const SharedLink::End end_;
  UniqueFd listener_;
  std::map<Line, std::unique_ptr<SharedLink>> lines_;
  std::vector<std::unique_ptr<SharedLink>> unnamed_;  // accepted, and still without a proof
  std::vector<std::unique_ptr<SharedLink>> retired_;  // until the peer has closed them
  std::vector<Refusal> refusals_;
  Line taken_;  // the line of the last message taken
};

// Returns null if there is no such link, or if memory is not shared at all.
inline SharedLink* FindLink(const std::unique_ptr<SharedLinks>& links,
                            const SharedLinks::Line& line) {
  return links == nullptr ? nullptr : links->Find(line);
}

}  // namespace pando
