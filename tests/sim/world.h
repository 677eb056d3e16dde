// World is the simulator's clock, event queue and source of chance; Network moves encoded messages
// in it, and loses, delays, repeats and reorders them. Everything follows from one seed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <vector>

#include "proto/codec.h"
#include "proto/outbox.h"

namespace pando::sim {

// SplitMix64 (Steele, Lea, Flood 2014): ours, since std distributions differ between libraries.
class Chance {
 public:
  explicit Chance(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : Next() % bound; }
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  bool OneIn(double probability) {
    return static_cast<double>(Next() >> 11) * 0x1.0p-53 < probability;
  }

 private:
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

struct NetworkOptions {
  double loss = 0;
  double duplication = 0;
  Micros delay_min = std::chrono::microseconds(50);
  Micros delay_max = std::chrono::microseconds(500);
  double straggle = 0;  // share of messages delayed a hundred times as long
};

// Delivers what is sent, through the real codec, to whoever lives under the receiver's incarnation
// and lane; a receiver without incarnation is the scheduler.
class Network {
 public:
  using Deliver = std::function<void(const Envelope&)>;
  using Watch = std::function<void(const Envelope&)>;
  Network(World& world, NetworkOptions options) : world_(world), options_(options) {}

  void Attach(const PeerId& peer, Deliver deliver);
  void Detach(Incarnation incarnation);
  void SetScheduler(const PeerId& scheduler) { scheduler_ = scheduler; }
  void SetWatch(Watch watch) { watch_ = std::move(watch); }  // sees everything sent
  void SetTrace(bool on) { is_tracing_ = on; }
  void Send(const Envelope& envelope);
  // Everything between this process and all others that is under way is lost.
  void ResetConnections(Incarnation incarnation);
  void Heal();  // from now on nothing is lost, repeated or late
  uint64_t trace_hash() const { return trace_hash_; }
  uint64_t message_count() const { return message_count_; }

 private:
  using Address = std::pair<Incarnation, uint16_t>;
  void Transmit(const Envelope& envelope, const Frames& frames, bool is_reliable);
  uint64_t EpochOf(Incarnation a, Incarnation b);

  World& world_;
  NetworkOptions options_;
  PeerId scheduler_;
  std::map<Address, Deliver> peers_;
  std::map<Incarnation, uint64_t> resets_;
  Watch watch_;
  bool is_tracing_ = false;
  uint64_t trace_hash_ = 0;
  uint64_t message_count_ = 0;
};

std::string NameOfMessage(const Message& message);

}  // namespace pando::sim
