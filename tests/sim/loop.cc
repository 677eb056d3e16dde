#include "tests/sim/loop.h"

#include <algorithm>
#include <utility>

namespace pando::sim {

void Loop::SetCore(std::unique_ptr<ProtocolCore> core, Hooks hooks) {
  core_ = std::move(core);
  hooks_ = std::move(hooks);
}

void Loop::Post(std::function<void()> event) {
  if (!is_alive_) return;
  if (is_stopped_ || !inbox_.empty()) return inbox_.push_back(std::move(event));
  Run(event);
  WakeSoon();
}

void Loop::Run(const std::function<void()>& event) {
  event();
  if (is_alive_ && hooks_.after_event) hooks_.after_event();
}

// The loop drains what is queued before it ticks: what arrives within a moment shares the tick.
void Loop::WakeSoon() {
  if (is_tick_due_ || !is_alive_) return;
  is_tick_due_ = true;
  world_.After(Micros(world_.chance().Below(100)), [this] {
    is_tick_due_ = false;
    if (is_alive_ && !is_stopped_) Tick();
  });
}

void Loop::Tick() {
  core_->Tick(world_.now());
  if (is_alive_ && hooks_.after_event) hooks_.after_event();
  if (is_alive_ && hooks_.after_tick) hooks_.after_tick();
  if (!is_alive_) return;
  const Micros deadline = core_->NextDeadline();
  if (deadline == kNever || (deadline >= wakes_at_ && wakes_at_ > world_.now())) return;
  wakes_at_ = std::max(deadline, world_.now() + Micros(1));
  world_.After(wakes_at_ - world_.now(), [this] { WakeSoon(); });
}

void Loop::Continue() {
  is_stopped_ = false;
  Drain();
}

// A turn takes a bounded number of messages (net/event_loop): a long queue outlasts the first late
// tick (P27).
void Loop::Drain() {
  if (!is_alive_ || is_stopped_) return;
  uint64_t turn = inbox_.size();
  if (world_.chance().OneIn(0.3)) turn = world_.chance().Below(turn + 1);
  for (; turn > 0 && is_alive_ && !is_stopped_; --turn) {
    const auto event = std::move(inbox_.front());
    inbox_.pop_front();
    Run(event);
  }
  if (is_alive_ && !is_stopped_) Tick();
  if (!inbox_.empty()) {
    world_.After(Micros(1 + world_.chance().Below(200)), [this] { Drain(); });
  } else {
    WakeSoon();
  }
}

}  // namespace pando::sim
