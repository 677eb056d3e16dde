#include "tests/sim/desk.h"

#include <utility>

namespace pando::sim {

void Desk::Tell(FaultNote note) {
  note.number = ++notes_;
  Post(std::move(note));
}

void Desk::Ask(Command command) { Post(std::move(command)); }

void Desk::Post(Message message) {
  auto letter = std::make_shared<Letter>();
  letter->self = {kUnknownNode, Incarnation(world_.chance().Next() | 1), 0};
  letter->message = std::move(message);
  letter->epoch = epoch_;
  network_.Attach(place_, letter->self, [letter](const Envelope& envelope) {
    if (std::holds_alternative<FaultNoteAck>(envelope.message)) letter->is_answered = true;
    const auto* reply = std::get_if<CommandReply>(&envelope.message);
    if (reply != nullptr && reply->outcome != CommandOutcome::kAccepted) {
      letter->is_answered = true;
    }
  });
  Repeat(letter);
}

void Desk::Repeat(const std::shared_ptr<Letter>& letter) {
  if (letter->is_answered || letter->epoch != epoch_) {
    return network_.Detach(letter->self.incarnation);
  }
  network_.Send(place_, {.job = job_,
                         .sender = letter->self,
                         .receiver = {kSchedulerNode, Incarnation(0), 0},
                         .message = letter->message});
  world_.After(std::chrono::milliseconds(300), [this, letter] { Repeat(letter); });
}

}  // namespace pando::sim
