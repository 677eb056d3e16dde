// World is the simulator's clock, event queue and source of chance. Everything follows from one
// seed.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <string_view>
#include <vector>

#include "proto/outbox.h"

namespace pando::sim {

// SplitMix64 (Steele, Lea, Flood 2014): ours, since std distributions differ between libraries.
class Chance {
 public:
  explicit Chance(uint64_t seed) : seed_(seed), state_(seed) {}
  // A separate stream, made of this one's seed and the name alone. What is drawn here before does
  // not change it, and what is drawn from it changes nothing here.
  Chance Fork(std::string_view name) const;
  uint64_t Next();
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : Next() % bound; }
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  Micros Until(Micros bound) { return Micros(Below(static_cast<uint64_t>(bound.count()))); }
  bool OneIn(double probability) {
    return static_cast<double>(Next() >> 11) * 0x1.0p-53 < probability;
  }

 private:
  uint64_t seed_;
  uint64_t state_;
};

class World {
 public:
  explicit World(uint64_t seed) : chance_(seed) {}
  Micros now() const { return now_; }
  Chance& chance() { return chance_; }
  // Runs `action` at now + delay; actions of one instant run in the order they were asked for.
  void After(Micros delay, std::function<void()> action);
  // Runs the next action; false when none is left.
  bool Step();

 private:
  struct Event {
    Micros time;
    uint64_t order;
    std::function<void()> action;
    bool operator<(const Event& other) const {  // the earliest is the queue's top
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  Micros now_{0};
  uint64_t order_ = 0;
  Chance chance_;
  std::priority_queue<Event> queue_;
};

}  // namespace pando::sim
