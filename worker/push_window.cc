#include "worker/push_window.h"

#include <algorithm>
#include <utility>

namespace pando {
namespace {

constexpr size_t kOneShard = 1;  // in bytes: the first shard goes even if it is larger

}  // namespace

void PushWindow::Begin(Micros now, Version lacking, Micros patience) {
  now_ = now;
  patience_ = patience;
  is_computed_ = false;
  const bool is_another_step = std::exchange(lacking_, lacking) != lacking;
  for (auto& [peer, lane] : lanes_) {
    lane.is_held_up = false;
    if (is_another_step) lane.open_at = kNever;
  }
}

void PushWindow::FromFirst() {
  is_computed_ = true;
  From(kFirst);
}

void PushWindow::FromLast() { From(kLast); }

// How many bytes may be passed before what comes next is held up.
size_t PushWindow::Room(const Lane& lane) const {
  if (bytes_max_ == SIZE_MAX) return SIZE_MAX;
  if (is_computed_ && edge_ == kLast) return kOneShard;
  return std::min(bytes_max_, std::clamp(lane.all_bytes / kShareOfLane, kBytesMin, kBytesMax));
}

void PushWindow::From(Edge edge) {
  edge_ = edge;
  for (auto& [peer, lane] : lanes_) {
    lane.passed_bytes = 0;
    lane.is_waiting_for_us = false;
  }
}

bool PushWindow::Admits(const PeerId& peer) {
  Lane& lane = lanes_[peer];
  if (lane.passed_bytes < Room(lane) || lane.is_waiting_for_us || lane.open_to == lacking_)
    return true;
  if (lane.open_at == kNever) lane.open_at = now_ + patience_;
  lane.is_held_up = now_ < lane.open_at;
  if (!lane.is_held_up) lane.open_to = lacking_;
  return !lane.is_held_up;
}

void PushWindow::Pass(const PeerId& peer, ShardId shard, size_t bytes, bool is_all_here) {
  Lane& lane = lanes_[peer];
  if (lane.passed_bytes == 0) {
    if (lane.begins_at[edge_] != shard) lane.open_at = lane.is_held_up ? now_ + patience_ : kNever;
    lane.begins_at[edge_] = shard;
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
