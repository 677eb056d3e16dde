// NodeIds gives the processes of a run their ids, and remembers the lives that were given up.
// RunMembers owns it.
#pragma once

#include <functional>
#include <optional>

#include "common/ids.h"
#include "common/recent_map.h"
#include "proto/message_limits.h"

namespace pando {

class NodeIds {
 public:
  // `next`: of the journal.
  explicit NodeIds(uint32_t next) : next_(next) {}

  // An id that no process has; none: all have one. An id comes again only after all others, so what
  // still names the process that had it is old. Incarnations tell them apart (P19).
  std::optional<NodeId> Take(const std::function<bool(NodeId)>& is_taken) {
    for (uint32_t tries = 1; tries < kNodesMax; ++tries) {
      if (next_ >= kNodesMax) next_ = 1;
      const NodeId id(next_++);
      if (!is_taken(id)) return id;
    }
    return std::nullopt;
  }
  uint32_t next() const { return next_; }

  // This life is never welcomed again, nor are the newest others (kNodesMax).
  void GiveUp(Incarnation life) { given_up_.Touch(life); }
  bool IsGivenUp(Incarnation life) const { return given_up_.Find(life) != nullptr; }

 private:
  uint32_t next_;
  RecentMap<Incarnation, bool> given_up_{kNodesMax};
};

}  // namespace pando
