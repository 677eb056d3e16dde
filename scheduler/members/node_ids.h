// NodeIds gives processes their ids and remembers given-up incarnations. RunMembers owns it.
#pragma once

#include <functional>
#include <optional>

#include "common/ids.h"
#include "common/recent_map.h"
#include "proto/message_limits.h"

namespace pando {

class NodeIds {
 public:
  // `next`: next() of the scheduler's earlier life, from the journal.
  explicit NodeIds(uint32_t next) : next_(next) {}

  // Returns an id that no process has, or none if all are taken. An id is reused only after all
  // others, so messages to its last process are old. Incarnations tell the two apart (P19).
  std::optional<NodeId> Take(const std::function<bool(NodeId)>& is_taken) {
    for (uint32_t tries = 1; tries < kNodesMax; ++tries) {
      if (next_ >= kNodesMax) next_ = 1;
      const NodeId id(next_++);
      if (!is_taken(id)) return id;
    }
    return std::nullopt;
  }
  uint32_t next() const { return next_; }

  // Bars this incarnation from joining again. The newest kNodesMax of them are remembered.
  void GiveUp(Incarnation life) { given_up_.Touch(life); }
  bool IsGivenUp(Incarnation life) const { return given_up_.Find(life) != nullptr; }

 private:
  uint32_t next_;
  RecentMap<Incarnation, bool> given_up_{kNodesMax};
};

}  // namespace pando
