// ViewMember: what a lane and a session have in common as parties of a view: it knows the current
// view and the current scheduler, speaks under them, and listens only to that view's members and
// that scheduler.
// Threads: none.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "proto/outbox.h"

namespace pando {

class ViewMember {
 public:
  struct Identity {
    PeerId self;
    PeerId scheduler;  // who welcomed us; a later life of it makes itself known by its views (P26)
    JobId job;
  };
  // `outbox` outlives the member.
  ViewMember(const Identity& identity, Outbox& outbox) : identity_(identity), outbox_(outbox) {}

  const PeerId& self() const { return identity_.self; }
  const PeerId& scheduler() const { return identity_.scheduler; }
  const View& view() const { return view_; }
  bool has_view() const { return view_.id.number != 0; }

  void Send(const PeerId& to, Message message) {
    outbox_.Send({.job = identity_.job,
                  .generation = view_.generation,
                  .view = view_.id,
                  .sender = identity_.self,
                  .receiver = to,
                  .message = std::move(message)});
  }
  void SendToScheduler(Message message) { Send(identity_.scheduler, std::move(message)); }

  // Whether to listen to this envelope at all: it is for this life of ours (P19), of our job and
  // generation (P21), and not from a stranger, who could only cost memory or push what is not its
  // own. What only the scheduler may say counts from the scheduler alone. A member who shows an
  // older view is told ours (P13).
  // Views are heard from a newer generation too, and from any life of the scheduler; so is the
  // scheduler's word that we have been given up, or that the run is over. That who claims to be the
  // scheduler is reached where we dialed it is net's to see.
  bool Admit(Micros now, const Envelope& envelope);

  // Whether it brings a view that Admit lets in and Enter takes.
  bool WillEnter(const Envelope& envelope) const;
  // True if the view is newer than ours, which it then replaces: the caller discards what it holds
  // of another generation (P21). A scheduler whose view is not older than ours, or of our view's
  // term while we know of an earlier one, is ours from then on; any gets an acknowledgement that
  // says our newest view (P26).
  bool Enter(const PeerId& from, const View& view);
  // Tells a peer our view, at most once in a while.
  void HintView(Micros now, const PeerId& peer);

 private:
  bool IsHeard(const Envelope& envelope) const;
  bool IsOfOurTime(const Envelope& envelope) const;
  bool IsOfOurScheduler(const Envelope& envelope) const;
  bool IsNewer(const View& view) const;
  bool IsByOurScheduler(const View& view) const;

  Identity identity_;
  Outbox& outbox_;
  View view_;
  uint64_t scheduler_term_ = 0;  // of the newest view that it showed us itself
  std::set<Incarnation> members_;
  std::map<Incarnation, Micros> hint_at_;  // when a member may be told again
};

}  // namespace pando
