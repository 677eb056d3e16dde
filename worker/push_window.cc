#include "worker/push_window.h"

#include <algorithm>

namespace pando {

void PushWindow::Begin(Micros now, Version lacking) {
  now_ = now;
  lacking_ = lacking;
  for (auto& [peer, lane] : lanes_) {
    lane.passed_bytes = 0;
    lane.is_held_up = false;
  }
}

bool PushWindow::Admits(const PeerId& peer) {
  Lane& lane = lanes_[peer];
  if (lane.passed_bytes < bytes_ || lane.open_to == lacking_) return true;
  if (lane.open_at == kNever) lane.open_at = now_ + kPatience;
  lane.is_held_up = now_ < lane.open_at;
  if (!lane.is_held_up) lane.open_to = lacking_;
  return !lane.is_held_up;
}

void PushWindow::Pass(const PeerId& peer, ShardId shard, size_t bytes) {
  Lane& lane = lanes_[peer];
  if (lane.passed_bytes == 0 && lane.first != shard) {
    lane.first = shard;
    lane.open_at = kNever;
  }
  lane.passed_bytes += bytes;
}

void PushWindow::End() {
  for (auto& [peer, lane] : lanes_) {
    if (!lane.is_held_up) lane.open_at = kNever;
  }
}

Micros PushWindow::NextDeadline() const {
  Micros deadline = kNever;
  for (const auto& [peer, lane] : lanes_) deadline = std::min(deadline, lane.open_at);
  return deadline;
}

}  // namespace pando
