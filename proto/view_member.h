// ViewMember: what a lane and a session have in common as parties of a view: it knows the current
// view, speaks under it, and listens only to that view's members and the scheduler.
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
    PeerId scheduler;
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
  bool Admit(Micros now, const Envelope& envelope);

  // Acknowledges the scheduler's update; true if it is newer than ours, which it then replaces.
  bool Enter(const PeerId& from, const View& view);
  // Tells a peer our view, at most once in a while.
  void HintView(Micros now, const PeerId& peer);

 private:
  Identity identity_;
  Outbox& outbox_;
  View view_;
  std::set<Incarnation> members_;
  std::map<Incarnation, Micros> hint_at_;  // when a member may be told again
};

}  // namespace pando
