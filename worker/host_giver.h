// HostGiver gives a worker's gradients to its host's relay instead of pushing them. The giver stays
// responsible for a gradient until the lane commits it (P11): it asks a silent relay what it holds,
// gives lost gradients again, and pushes by itself if the relay does not answer. So nothing depends
// on the relay. Every session has a giver and a relay, and uses at most one of them. Threads: none.
#pragma once

#include <algorithm>
#include <optional>

#include "proto/assignment.h"
#include "worker/lane_requests.h"

namespace pando {

class HostGiver : SessionPart {
 public:
  // A relay that sends nothing for so long is asked what it holds, and again after kAskAgain.
  static constexpr Micros kQuiet = std::chrono::milliseconds(100);
  static constexpr Micros kAskAgain = std::chrono::milliseconds(50);
  // A relay that does not answer for this time, plus the time to receive and sum what it owes, is
  // given up. It is then asked every kAskGivenUp, and gets nothing until it answers.
  static constexpr Micros kPatience = std::chrono::milliseconds(200);
  static constexpr size_t kSlowestBytesPerMicro = 200;  // 200 MB/s: cold memory, shared cores
  static constexpr Micros kAskGivenUp = std::chrono::seconds(1);

  // `requests` outlives it.
  HostGiver(const SessionPart& part, const LaneRequests& requests)
      : SessionPart(part), requests_(requests) {}

  void EnterView(const HostGroup& group);
  // Returns whether gradients of this shard go to the relay.
  bool Gives(ShardId shard) const { return GivesAny() && group_.sums[shard.value()]; }
  // Returns whether gradients of any shard do.
  bool GivesAny() const { return has_relay_ && !has_given_up_; }
  bool IsOurRelay(const PeerId& peer) const { return has_relay_ && peer == group_.relay; }
  const PeerId& relay() const { return group_.relay; }
  bool has_given_up() const { return has_given_up_; }

  void OnGiven(Micros now) {
    if (ask_at_ == kNever) ask_at_ = now + kQuiet;
  }
  // The relay has sent parameters. If it is given up, they are late and change nothing.
  void OnParams(Micros now) {
    if (has_given_up_) return;
    asked_since_.reset();
    ask_at_ = now + kQuiet;
  }
  // Returns whether the giver waited for the answer. Gradients that the relay lacks are given
  // again, unless they may have been on their way when it answered. Versions that it names are
  // pulled.
  bool OnAnswer(Micros now, const Answer& answer);
  void Tick(Micros now);
  Micros NextDeadline() const { return ask_at_; }

 private:
  void GiveUp(Micros now);

  const LaneRequests& requests_;
  HostGroup group_;
  bool has_relay_ = false;  // it is another worker
  bool has_given_up_ = false;
  Micros ask_at_ = kNever;
  std::optional<Micros> asked_since_;  // the first question that is not answered
};

}  // namespace pando
