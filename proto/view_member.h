// ViewMember is the common part of a lane and a session as members of a view. It keeps the current
// view and scheduler, puts them into what it sends, and admits messages only from that view's
// members and that scheduler. Threads: none.
#pragma once

#include <functional>
#include <map>
#include <optional>
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
  // `outbox` outlives the member. `fits` says whether a view is one of the member's job; others are
  // ignored. Null: all are taken.
  using Fits = std::function<bool(const View& view)>;
  ViewMember(const Identity& identity, Outbox& outbox, Fits fits = nullptr)
      : identity_(identity), outbox_(outbox), fits_(std::move(fits)) {}

  const PeerId& self() const { return identity_.self; }
  const PeerId& scheduler() const { return identity_.scheduler; }
  const View& view() const { return *view_; }
  bool has_view() const { return view_->id.number != 0; }
  bool is_in_view() const { return members_.contains(identity_.self.incarnation); }

  void Send(const PeerId& to, Message message) {
    if (identity_.probe != nullptr) identity_.probe->BeginSend(message);
    outbox_.Send({.job = identity_.job,
                  .generation = view_->generation,
                  .view = view_->id,
                  .sender = identity_.self,
                  .receiver = to,
                  .message = std::move(message)});
    if (identity_.probe != nullptr) identity_.probe->EndSend();
  }
  void SendToScheduler(Message message) { Send(identity_.scheduler, std::move(message)); }

  // Returns whether to accept this envelope. It must be for this incarnation (P19), of this job and
  // generation (P21), and from a member or the scheduler. Messages that only the scheduler may send
  // are accepted from it alone. Exceptions: a view of a newer generation, or a hint at one; a view
  // of any scheduler incarnation; Refused and Stop of the scheduler; and ViewWanted. net checks
  // that a scheduler's message came from the endpoint that was dialed. A member that shows an older
  // view gets a hint (P13).
  bool Admit(Micros now, const Envelope& envelope);

  // Returns the view that Admit and OnView would take with this envelope, if there is one.
  std::optional<SharedView> NextView(const Envelope& envelope) const;
  // Handles a ViewUpdate or ViewDelta. Returns whether its view is newer, and then the caller
  // discards what it holds of another generation (P21). If the difference is from another view, it
  // asks the sender for the whole view.
  bool OnView(Micros now, const Envelope& envelope);
  // Takes the view if it is genuine and newer than view(), and returns whether it did. If `from` is
  // a scheduler, it becomes scheduler() if its view is not older, or if the view has this term and
  // scheduler() is from before this term. Every scheduler gets an acknowledgement with the newest
  // view (P26).
  bool Enter(const PeerId& from, const SharedView& view, const std::string& signature = "");
  // Tells the peer that it has an older view, at most once per interval (P13).
  void HintView(Micros now, const PeerId& peer);
  // A peer has a newer view (P13): asks it for the view, if it is the first one to tell.
  void OnHint(Micros now, const Envelope& envelope);
  // Answers a ViewWanted.
  void OnViewWanted(Micros now, const Envelope& envelope);
  void SendView(const PeerId& to) { Send(to, ViewUpdate{view_, signature_}); }

 private:
  // Returns the view in a ViewUpdate, or the one that a ViewDelta makes of view(); none if the
  // message has none, or a delta from another view.
  std::optional<SharedView> BroughtBy(const Message& message) const;
  bool IsHeard(const Envelope& envelope) const;
  bool IsOfOurTime(const Envelope& envelope) const;
  bool IsOfOurScheduler(const Envelope& envelope) const;
  bool IsNewer(ViewId id, uint32_t generation) const;
  bool IsGenuine(const View& view, const std::string& signature) const;
  bool IsByOurScheduler(ViewId id, uint32_t generation) const;
  void Follow(const PeerId& from, ViewId id, uint32_t generation);
  void Acknowledge(const PeerId& from);
  void AskForView(Micros now, const PeerId& peer);

  Identity identity_;
  Outbox& outbox_;
  const Fits fits_;
  SharedView view_;
  std::string signature_;                      // the scheduler's signature of the view
  uint64_t scheduler_term_ = 0;                // of the newest view that the scheduler itself sent
  mutable std::optional<SharedView> applied_;  // by the last ViewDelta: it is asked for twice
  std::map<Incarnation, Role> members_;
  std::map<Incarnation, Micros> hint_at_;    // when a member may get the next hint
  std::map<Incarnation, Micros> answer_at_;  // when a member may get the view again
  std::optional<Micros> may_hint_at_;        // none: it has received nothing in this view
  Micros ask_at_{0};                         // when it may ask for a view again
};

}  // namespace pando
