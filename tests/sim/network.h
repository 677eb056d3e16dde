// Network moves encoded messages in virtual time between places, and loses, delays, repeats,
// reorders and withholds them. A place is where a process lives: a restarted process is at the same
// place under a new incarnation, and links that are cut are between places.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "proto/codec.h"
#include "proto/outbox.h"
#include "tests/sim/shared_memory.h"
#include "tests/sim/world.h"

namespace pando::sim {

using Place = uint32_t;

struct NetworkOptions {
  double loss = 0;
  double duplication = 0;
  Micros delay_min = std::chrono::microseconds(50);
  Micros delay_max = std::chrono::microseconds(500);
  double straggle = 0;  // share of messages delayed a hundred times as long
  double echo = 0;      // share of messages that come again when their receiver enters a new view
};

inline constexpr size_t kMessageKindCount = std::variant_size_v<MessageVariant>;

// Delivers messages, through the real codec, to the process with the receiver's incarnation
// and lane. The scheduler's endpoint is an address: messages for node 0 go to the scheduler that
// holds the endpoint, even if the message names another incarnation.
class Network {
 public:
  using Deliver = std::function<void(const Envelope&)>;
  // Sees everything that is sent, and may change it. False: it does not leave.
  using Watch = std::function<bool(Envelope&)>;
  Network(World& world, NetworkOptions options) : world_(world), options_(options) {}

  void Attach(Place place, const PeerId& peer, Deliver deliver);
  void Detach(Incarnation incarnation);
  void SetScheduler(const PeerId& scheduler) { scheduler_ = scheduler; }
  void SetWatch(Watch watch) { watch_ = std::move(watch); }
  SharedMemory& shared_memory() { return shared_memory_; }
  void SetTrace(bool on) { is_tracing_ = on; }
  bool is_tracing() const { return is_tracing_; }
  void Send(Place from, Envelope envelope);
  // A hostile peer's: not watched, counted or lost.
  void SendForged(Place from, const Envelope& envelope);
  // The same, and it arrives at once: what its sender knows is not old.
  void DeliverForged(const Envelope& envelope);

  // The message that is being sent comes a second time, so much later.
  void RepeatLater(Micros delay) { late_copy_ = delay; }
  // Everything between this process and all others that is under way is lost.
  void ResetConnections(Incarnation incarnation) { ++resets_[incarnation]; }
  // From now on nothing goes from one place to the other, until this time. What is sent meanwhile
  // is lost, or waits in the sender's connection.
  enum class Cut : uint8_t { kLoses, kHolds };
  void CutLink(Place from, Place to, Micros until, Cut kind);
  bool IsCut(Place from, Place to) const;
  // The end of the last cut, which may explain a silence.
  Micros last_cut_end(Place place) const;
  void Heal();  // from now on nothing is lost, repeated, late or withheld

  uint64_t trace_hash() const { return trace_hash_; }
  uint64_t message_count() const { return message_count_; }
  const std::array<uint64_t, kMessageKindCount>& counts() const { return counts_; }

 private:
  using Address = std::pair<Incarnation, uint16_t>;
  struct Link {
    Micros cut_until{0};
    Cut kind = Cut::kLoses;
  };
  struct Attached {
    Place place = 0;
    Deliver deliver;
  };
  struct Parcel;  // a message under way
  struct Content {
    const Frames frames;
    const std::vector<SharedMemory::Named> named;
  };
  void Transmit(Place from, const Envelope& envelope, const Content& content, bool is_reliable,
                Micros extra_delay = Micros(0));
  void Arrive(std::shared_ptr<const Parcel> parcel);
  uint64_t Epoch(Incarnation a, Incarnation b);
  void Echo(const Address& receiver, ViewId entered);
  void AddToTrace(const Envelope& envelope, const Content& content);
  void Trace(const Envelope& envelope) const;

  World& world_;
  NetworkOptions options_;
  SharedMemory shared_memory_;
  PeerId scheduler_;
  std::map<Address, Attached> peers_;
  std::map<Incarnation, uint64_t> resets_;
  std::map<std::pair<Place, Place>, Link> links_;  // those that were ever cut
  // Copies that wait for their receiver's next view, and the view that it is in.
  std::map<Address, std::vector<std::shared_ptr<const Parcel>>> echoes_;
  std::map<Address, ViewId> entered_;
  Watch watch_;
  std::optional<Micros> late_copy_;
  bool is_tracing_ = false;
  uint64_t trace_hash_ = 0;
  uint64_t message_count_ = 0;
  std::array<uint64_t, kMessageKindCount> counts_{};
};

}  // namespace pando::sim
