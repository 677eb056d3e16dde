#include "tests/sim/world.h"

#include <utility>

namespace pando::sim {

uint64_t Chance::Next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

Chance Chance::Fork(std::string_view name) const {
  uint64_t seed = seed_;
  for (const char letter : name) seed = Chance(seed ^ static_cast<uint8_t>(letter)).Next();
  return Chance(seed);
}

void World::After(Micros delay, std::function<void()> action) {
  queue_.push({now_ + delay, order_++, std::move(action)});
}

bool World::Step() {
  if (queue_.empty()) return false;
  auto action =
      std::move(const_cast<Event&>(queue_.top()).action);  // popped at once: the change is not seen
  now_ = queue_.top().time;
  queue_.pop();
  action();
  return true;
}

}  // namespace pando::sim
