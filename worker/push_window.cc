#include "worker/push_window.h"

#include <algorithm>

namespace pando {

PushWindow::PushWindow(const std::vector<size_t>& shard_bytes, std::optional<size_t> room)
    : begins_{0}, fixed_room_(room) {
  for (const size_t bytes : shard_bytes) begins_.push_back(begins_.back() + bytes);
}

void PushWindow::Begin(const Look& look) {
  const bool has_moved = look.lacking != look_.lacking || look.front != look_.front ||
                         look.back != look_.back || look.is_computed != look_.is_computed;
  look_ = look;
  if (has_moved) open_at_ = kNever;
  if (look.now >= open_at_) open_for_ = look.lacking;
  room_ = fixed_room_.value_or(RoomByRule());
  is_open_ = room_ == SIZE_MAX || look.is_awaiting_us || open_for_ == look.lacking;
}

size_t PushWindow::RoomByRule() const {
  const size_t bytes = begins_.back();
  size_t sent_in_round_trip = kBytesUnmeasured;
  if (look_.usual) {
    const auto round_trips = std::max<Micros::rep>(*look_.usual / kRoundTrip, 1);
    sent_in_round_trip = bytes / static_cast<size_t>(round_trips);
  }
  const size_t share = std::max(bytes / kShareOfStep, sent_in_round_trip);
  return std::max(std::min(share, kBytesMax), kRounds * round_bytes_);
}

void PushWindow::End(bool is_held_up) {
  if (!is_held_up) open_at_ = kNever;
  if (!is_held_up || open_at_ != kNever) return;
  open_at_ = look_.now + std::min(look_.usual.value_or(Micros::max()) / 4, kPatienceMax);
}

}  // namespace pando
