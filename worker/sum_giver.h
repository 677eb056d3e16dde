// SumGiver gives a worker's gradients to the relays of its host or rack instead of pushing them.
// The giver stays responsible for a gradient until the lane commits it (P11): it asks a silent
// relay what it holds, gives lost gradients again, and pushes by itself if the relay does not
// answer. So nothing depends on a relay. Every session has a giver and a relay; in a rack it uses
// both. Threads: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "proto/assignment.h"
#include "worker/lane_requests.h"
#include "worker/step_clock.h"

namespace pando {

class SumGiver : SessionPart {
 public:
  // A relay that sends nothing for so long is asked what it holds, and again after kAskAgain.
  static constexpr Micros kQuiet = std::chrono::milliseconds(100);
  static constexpr Micros kAskAgain = std::chrono::milliseconds(50);
  // A relay that does not answer for this time, plus the time to receive and sum what it owes, is
  // given up. It is then asked every kAskGivenUp, and gets nothing until it answers.
  static constexpr Micros kPatience = std::chrono::milliseconds(200);
  static constexpr size_t kSlowestBytesPerMicro = 200;  // 200 MB/s: cold memory, shared cores
  static constexpr Micros kAskGivenUp = std::chrono::seconds(1);
  // A relay on another host is asked as rarely as a lane (LaneRequests::kRetryFirst), and has more
  // time: a question waits behind all gradients that were sent before it, over a slow network for
  // as long as kStepsFar usual steps.
  static constexpr Micros kPatienceFar = std::chrono::seconds(2);
  static constexpr int kStepsFar = 2;

  // `requests` and `clock` outlive it.
  SumGiver(const SessionPart& part, const LaneRequests& requests, const StepClock& clock)
      : SessionPart(part), requests_(requests), clock_(clock) {}

  void EnterView(const SumGroup& group);
  // Returns whether gradients of this shard go to a relay.
  bool Gives(ShardId shard) const { return GivesTo(shard) != nullptr; }
  // Returns the relay to which they go; null: none.
  const PeerId* GivesTo(ShardId shard) const;
  bool IsOurRelay(const PeerId& peer) const { return relays_.contains(peer); }
  // Returns whether the group has given the shard to this relay.
  bool IsRelayFor(ShardId shard, const PeerId& peer) const { return group_.IsRelay(shard, peer); }
  // Changes when a relay is given up, or answers again.
  uint64_t changes() const { return changes_; }
  // Returns whether a relay is given up.
  bool has_given_up() const {
    return std::ranges::any_of(relays_, [](const auto& at) { return at.second.is_given_up; });
  }

  void OnGiven(Micros now, const PeerId& relay) {
    Micros& ask_at = relays_.at(relay).ask_at;
    if (ask_at == kNever) ask_at = now + Quiet(relays_.at(relay));
  }
  // The relay has sent parameters. If it is given up, they are late and change nothing.
  void OnParams(Micros now, const PeerId& from) {
    Relay& relay = relays_.at(from);
    if (relay.is_given_up) return;
    relay.asked_since.reset();
    relay.ask_at = now + Quiet(relay);
  }
  // Returns whether the giver waited for the answer. Gradients that the relay lacks are given
  // again, unless they may have been on their way when it answered. Versions that it names are
  // pulled.
  bool OnAnswer(Micros now, const PeerId& from, const Answer& answer);
  void Tick(Micros now);
  Micros NextDeadline() const;

 private:
  struct Relay {
    std::vector<ShardId> shards;  // whose gradients it gets
    bool is_far = false;          // it is on another host
    bool is_given_up = false;
    Micros ask_at = kNever;
    std::optional<Micros> asked_since = {};  // the first question that is not answered
    Micros interval{0};                      // between the newest questions, far away
  };
  static Micros Quiet(Relay& relay);
  void TickRelay(Micros now, const PeerId& peer, Relay& relay);
  Micros Patience(const Relay& relay) const;

  const LaneRequests& requests_;
  const StepClock& clock_;
  SumGroup group_;
  std::map<PeerId, Relay> relays_;  // the other workers that are relays
  uint64_t changes_ = 0;
};

}  // namespace pando
