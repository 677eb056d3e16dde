#include "worker/push_window.h"

#include <algorithm>
#include <utility>

namespace pando {

void PushWindow::Begin(Micros now, Version lacking, Micros patience) {
  now_ = now;
  patience_ = patience;
  const bool is_another_step = std::exchange(lacking_, lacking) != lacking;
  for (auto& [peer, lane] : lanes_) {
    lane.passed_bytes = 0;
    lane.is_held_up = false;
    if (is_another_step) lane.open_at = kNever;
  }
}

bool PushWindow::Admits(const PeerId& peer) {
  Lane& lane = lanes_[peer];
  if (lane.passed_bytes < bytes_ || lane.is_waiting_for_us || lane.open_to == lacking_) return true;
  if (lane.open_at == kNever) lane.open_at = now_ + patience_;
  lane.is_held_up = now_ < lane.open_at;
  if (!lane.is_held_up) lane.open_to = lacking_;
  return !lane.is_held_up;
}

void PushWindow::Pass(const PeerId& peer, ShardId shard, size_t bytes, bool is_all_here) {
  Lane& lane = lanes_[peer];
  if (lane.passed_bytes == 0) {
    if (lane.first != shard) lane.open_at = kNever;
    lane.first = shard;
    lane.is_waiting_for_us = !is_all_here;
  }
  lane.passed_bytes += bytes;
}

void PushWindow::End() {
  for (auto& [peer, lane] : lanes_) {
    if (!lane.is_held_up) lane.open_at = kNever;
  }
}

void PushWindow::Rest() {
  for (auto& [peer, lane] : lanes_) lane.open_at = kNever;
}

Micros PushWindow::NextDeadline() const {
  Micros deadline = kNever;
  for (const auto& [peer, lane] : lanes_) deadline = std::min(deadline, lane.open_at);
  return deadline;
}

}  // namespace pando
