// ViewMember is the common part of a lane and a session as members of a view. It keeps the current
// view and scheduler, puts them into what it sends, and admits messages only from that view's
// members and that scheduler. Threads: none.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "proto/outbox.h"
#include "proto/view_seal.h"

namespace pando {

// SendProbe records when a member's messages leave, for a timeline. Its implementation has a clock,
// because a core has none (node/process_timeline). Threads: the core's.
class SendProbe {
 public:
  virtual ~SendProbe() = default;
  virtual void BeginSend(const Message& message) = 0;
  virtual void EndSend() = 0;  // the outbox has the message
};

class ViewMember {
 public:
  struct Identity {
    PeerId self;
    PeerId scheduler;  // the sender of the Welcome; later ones announce themselves by views (P26)
    JobId job;
    ViewSeal* seal = nullptr;    // outlives the member; null: there are no keys
    SendProbe* probe = nullptr;  // outlives the member; null: there is no timeline
  };
  // `outbox` outlives the member.
  ViewMember(const Identity& identity, Outbox& outbox) : identity_(identity), outbox_(outbox) {}

  const PeerId& self() const { return identity_.self; }
  const PeerId& scheduler() const { return identity_.scheduler; }
  const View& view() const { return view_; }
  bool has_view() const { return view_.id.number != 0; }
  bool is_in_view() const { return members_.contains(identity_.self.incarnation); }

  void Send(const PeerId& to, Message message) {
    if (identity_.probe != nullptr) identity_.probe->BeginSend(message);
    outbox_.Send({.job = identity_.job,
                  .generation = view_.generation,
                  .view = view_.id,
                  .sender = identity_.self,
                  .receiver = to,
                  .message = std::move(message)});
    if (identity_.probe != nullptr) identity_.probe->EndSend();
  }
  void SendToScheduler(Message message) { Send(identity_.scheduler, std::move(message)); }

  // Returns whether to accept this envelope. It must be for this incarnation (P19), of this job and
  // generation (P21), and from a member or the scheduler. Messages that only the scheduler may send
  // are accepted from it alone. Exceptions: a view of a newer generation; a view of any scheduler
  // incarnation; and Refused, Stop or ViewWanted of the scheduler. net checks that a scheduler's
  // message came from the endpoint that was dialed. A member that shows an older view is sent this
  // one's view (P13).
  bool Admit(Micros now, const Envelope& envelope);

  // Returns whether the envelope brings a view that Admit accepts and Enter takes.
  bool WillEnter(const Envelope& envelope) const;
  // Takes the view if it is genuine and newer than view(), and returns whether it did. The caller
  // then discards what it holds of another generation (P21). If `from` is a scheduler, it becomes
  // scheduler() if its view is not older, or if the view has this term and scheduler() is from
  // before this term. Every scheduler gets an acknowledgement with the newest view (P26).
  bool Enter(const PeerId& from, const View& view, const std::string& signature = "");
  // Sends the peer the view, at most once per interval.
  void HintView(Micros now, const PeerId& peer);
  void SendView(const PeerId& to) { Send(to, ViewUpdate{view_, signature_}); }

 private:
  bool IsHeard(const Envelope& envelope) const;
  bool IsOfOurTime(const Envelope& envelope) const;
  bool IsOfOurScheduler(const Envelope& envelope) const;
  bool IsNewer(const View& view) const;
  bool IsGenuine(const View& view, const std::string& signature) const;
  bool IsByOurScheduler(const View& view) const;

  Identity identity_;
  Outbox& outbox_;
  View view_;
  std::string signature_;        // the scheduler's signature of the view
  uint64_t scheduler_term_ = 0;  // of the newest view that the scheduler itself sent
  std::map<Incarnation, Role> members_;
  std::map<Incarnation, Micros> hint_at_;  // when a member may get the next hint
};

}  // namespace pando
