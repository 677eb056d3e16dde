// ViewMember: the common part of a lane and a session as members of a
// view. It knows the current view and scheduler, sends under them, and
// admits messages only from that view's members and that scheduler.
// Threads: none.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "proto/outbox.h"
#include "proto/view_seal.h"

namespace pando {

// SendProbe records when a member's messages leave, for a timeline. A core has no clock: the
// implementation has one (node/process_timeline). Threads: called on the core's thread.
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
    PeerId scheduler;  // sent the Welcome; later incarnations announce themselves by views (P26)
    JobId job;
    ViewSeal* seal = nullptr;    // outlives the member; null: without keys all views are believed
    SendProbe* probe = nullptr;  // outlives the member; null: no timeline
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

  // Returns whether to accept this envelope. It must be for this incarnation (P19), of our job and
  // generation (P21), and not from a stranger, which could only cost memory or push wrong data.
  // Messages that only the scheduler may send are accepted from the scheduler alone. A member that
  // shows an older view is sent ours (P13). Exceptions: views of a newer generation, views of any
  // scheduler incarnation, and the scheduler's messages that this node was given up, that the run
  // is over, or that it wants our view are accepted. net checks that a scheduler's message came
  // from the endpoint that we dialed.
  bool Admit(Micros now, const Envelope& envelope);

  // Returns whether the envelope brings a view that Admit accepts and Enter takes.
  bool WillEnter(const Envelope& envelope) const;
  // Returns true if the view is genuine and newer than ours. It then replaces ours, and the caller
  // discards what it holds of another generation (P21). A scheduler becomes ours if its view is not
  // older than ours, or if it is of our view's term and we only know an earlier scheduler. Every
  // scheduler gets an acknowledgement with our newest view (P26).
  bool Enter(const PeerId& from, const View& view, const std::string& signature = "");
  // Sends a peer our view, rate-limited.
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
  std::string signature_;        // the scheduler's, over the view
  uint64_t scheduler_term_ = 0;  // of the newest view that the scheduler itself sent us
  std::map<Incarnation, Role> members_;
  std::map<Incarnation, Micros> hint_at_;  // when a member may get the next hint
};

}  // namespace pando
