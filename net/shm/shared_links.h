// SharedLinks: the peers with which a transport shares memory (P42). Used by net/transport alone.
//
// A party that is dialed listens on a Unix socket named after its incarnation and lane. A party
// that dials connects to it. If this fails, payloads travel as bytes. A link that this end closes
// is kept until the peer has closed it, because the peer may still read.
// Threads: one.
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
  static constexpr size_t kLinksMax = 2 * kSharedReadersMax;  // further ones get bytes

  explicit SharedLinks(SharedLink::End end) : end_(std::move(end)) {}

  // Lets peers connect under this name.
  Status Listen(const LinkPeer& self);
  void StopListening() { listener_ = UniqueFd(); }

  // Connects to a dialed peer. An error says why that is impossible.
  Status Connect(const LinkPeer& self, const LinkPeer& peer);
  void HangUp(const LinkPeer& peer);
  void HangUpAccepted();  // the links that peers have dialed
  void HangUpAll();

  // A line is the peer, and whether this end dialed it: two lanes may dial each other.
  struct Line {
    LinkPeer peer;
    bool is_dialed = false;
    auto operator<=>(const Line&) const = default;
  };
  SharedLink* Find(const Line& line) const;  // null: there is none
  // The next message and its line; false: there is none.
  bool Take(Line* line, Frames* message);
  bool has_message() const;

  std::vector<LinkPeer> connected() const;

  // Proves this process to the peers whose keys are known by now.
  void Prove();

  // AppendFds appends the descriptors to poll for reading. The function below is called with them
  // afterwards and reads what is available. It returns false if there was nothing.
  void AppendFds(std::vector<pollfd>* polled) const;
  bool Receive(std::span<const pollfd> polled);

  // A link that ended before it shared memory, and why.
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
  Line taken_;  // of the last message taken
};

// Null also where memory is not shared at all.
inline SharedLink* FindLink(const std::unique_ptr<SharedLinks>& links,
                            const SharedLinks::Line& line) {
  return links == nullptr ? nullptr : links->Find(line);
}

}  // namespace pando
