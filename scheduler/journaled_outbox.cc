#include "scheduler/journaled_outbox.h"

#include <utility>

#include "common/mutation.h"

namespace pando {
namespace {

// Without P25 a view is announced this long before it is in the journal.
constexpr Micros kLateJournal = std::chrono::milliseconds(100);

}  // namespace

void JournaledOutbox::Send(const PeerId& to, Message message) {
  outgoing_.push_back({.job = identity_.job,
                       .generation = views_.view().generation,
                       .view = views_.view().id,
                       .sender = identity_.self,
                       .receiver = to,
                       .message = std::move(message)});
}

bool JournaledOutbox::Commit() {
  if (fenced()) return false;
  status_ = journal_.Commit(state_.State());
  has_changed_ = false;
  journal_at_.reset();
  if (!fenced()) state_.OnJournaled();
  return !fenced();
}

void JournaledOutbox::Flush(Micros now) {
  if (has_changed_ && Mutated(Mutation::kAnnounceBeforeJournal)) {
    if (!journal_at_) journal_at_ = now + kLateJournal;
    if (now >= *journal_at_) Commit();
  } else if (has_changed_) {
    Commit();
  }
  std::vector<Envelope> outgoing = std::exchange(outgoing_, {});
  if (fenced()) return;
  for (Envelope& envelope : outgoing) outbox_.Send(std::move(envelope));
}

bool JournaledOutbox::TakeRepeat(Micros now) {
  if (now < repeat_at_) return false;
  repeat_at_ = now + kRepeatInterval;
  return true;
}

}  // namespace pando
