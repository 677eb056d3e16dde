#include "scheduler/journaled_outbox.h"

#include <utility>

namespace pando {

void JournaledOutbox::Send(const PeerId& to, Message message) {
  outgoing_.push_back({.job = identity_.job,
                       .generation = views_.view().generation,
                       .view = views_.view().id,
                       .sender = identity_.self,
                       .receiver = to,
                       .message = std::move(message)});
}

bool JournaledOutbox::Commit() {
  if (is_fenced()) return false;
  status_ = journal_.Commit(state_.State());
  has_changed_ = false;
  if (!is_fenced()) state_.OnJournaled();
  return !is_fenced();
}

void JournaledOutbox::Flush() {
  if (has_changed_) Commit();
  std::vector<Envelope> outgoing = std::exchange(outgoing_, {});
  if (is_fenced()) return;
  for (Envelope& envelope : outgoing) outbox_.Send(std::move(envelope));
}

bool JournaledOutbox::TakeRepeat(Micros now) {
  if (now < repeat_at_) return false;
  repeat_at_ = now + kRepeatInterval;
  return true;
}

}  // namespace pando
