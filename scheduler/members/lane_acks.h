// LaneAcks keeps the newest value that each lane has acknowledged: a view, a version. Used by
// the parts that repeat a message until it is acknowledged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "common/ids.h"
#include "proto/outbox.h"

namespace pando {

template <class T>
class LaneAcks {
 public:
  void OnAck(const PeerId& lane, const T& value) {
    T& acked = acked_[{lane.incarnation, lane.lane}];
    acked = std::max(acked, value);
  }
  // T() if the lane has acknowledged nothing.
  T Newest(const PeerId& lane) const {
    const auto it = acked_.find({lane.incarnation, lane.lane});
    return it == acked_.end() ? T() : it->second;
  }
  void Forget(Incarnation process) {
    acked_.erase(acked_.lower_bound({process, 0}), acked_.upper_bound({process, UINT16_MAX}));
  }
  void Clear() { acked_.clear(); }

 private:
  std::map<std::pair<Incarnation, uint16_t>, T> acked_;
};

}  // namespace pando
