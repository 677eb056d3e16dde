// EarlyMessages keeps messages of views that the lane has not entered yet, and gives them back once
// it has. Used by the lane; Replies adds what workers ask of a primary.
// Threads: none. Owns: at most kEarlyMax messages.
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "common/mutation.h"
#include "proto/view_member.h"

namespace pando {

class EarlyMessages {
 public:
  static constexpr size_t kEarlyMax = 256;

  explicit EarlyMessages(const ViewMember& member) : member_(member) {}

  // What replicas say, and questions. Pushes and pulls of a newer view are early only where the
  // lane is not the primary (Replies).
  bool IsEarly(const Envelope& envelope) const {
    if (envelope.view <= member_.view().id) return false;
    const Message& m = envelope.message;
    if (std::holds_alternative<Root>(m)) return !Mutated(Mutation::kUnequalViews);
    return std::holds_alternative<Chunk>(m) || std::holds_alternative<Question>(m);
  }
  void Keep(Envelope envelope) {
    if (messages_.size() < kEarlyMax) messages_.push_back(std::move(envelope));
  }
  // All that is kept, except what the view has passed. Some of it may still be early.
  std::vector<Envelope> Take() {
    std::vector<Envelope> kept = std::exchange(messages_, {});
    std::erase_if(kept, [&](const Envelope& envelope) {
      return envelope.generation != member_.view().generation || envelope.view < member_.view().id;
    });
    return kept;
  }

 private:
  const ViewMember& member_;
  std::vector<Envelope> messages_;
};

}  // namespace pando
