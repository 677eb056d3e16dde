// EarlyMessages keeps messages of views that the lane has not entered yet. Lane adds roots, chunks
// and questions; Replies adds workers' requests to a primary. Owns: at most kEarlyMax messages.
#pragma once

#include <utility>
#include <vector>

#include "proto/view_member.h"

namespace pando {

class EarlyMessages {
 public:
  static constexpr size_t kEarlyMax = 256;

  explicit EarlyMessages(const ViewMember& member) : member_(member) {}

  // Returns whether the message is a root, a chunk or a question of a newer view. Pushes and pulls
  // of a newer view are early only if the lane is not the primary (Replies).
  bool IsEarly(const Envelope& envelope) const;
  void Keep(Envelope envelope) {  // NOLINT: moved
    if (messages_.size() < kEarlyMax) messages_.push_back(std::move(envelope));
  }
  // Takes all kept messages, except those of older views. Some may still be early.
  std::vector<Envelope> Take();

 private:
  const ViewMember& member_;
  std::vector<Envelope> messages_;
};

}  // namespace pando
