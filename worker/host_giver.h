// HostGiver: a worker that gives its gradients to its host's relay instead of pushing them (P6a).
// The giver stays responsible for a gradient until the lane commits it (P11): it asks a silent
// relay what it holds, gives again what was lost, and pushes by itself if the relay does not
// answer. So nothing depends on the relay. Used by the session. Threads: none.
#pragma once

#include <optional>

#include "proto/host_group.h"
#include "proto/view_member.h"
#include "worker/committed_versions.h"
#include "worker/lane_requests.h"
#include "worker/unreplied_gradients.h"

namespace pando {

class HostGiver {
 public:
  // A relay that brings nothing for so long is asked what it holds, and again after kAskAgain.
  static constexpr Micros kQuiet = std::chrono::milliseconds(100);
  static constexpr Micros kAskAgain = std::chrono::milliseconds(50);
  // A relay that does not answer for so long, and the time to hand over and sum what it owes, is
  // given up: it is asked now and then, and gets nothing until it answers.
  static constexpr Micros kPatience = std::chrono::milliseconds(200);
  static constexpr size_t kSlowestBytesPerMicro = 200;  // 200 MB/s: cold memory, shared cores
  static constexpr Micros kAskGivenUp = std::chrono::seconds(1);

  // All outlive it.
  HostGiver(ViewMember& member, CommittedVersions& versions, UnrepliedGradients& gradients,
            const LaneRequests& requests)
      : member_(member), versions_(versions), gradients_(gradients), requests_(requests) {}

  void EnterView(const HostGroup& group);
  // Whether gradients of this shard go to the relay.
  bool Gives(ShardId shard) const;
  bool IsOurRelay(const PeerId& peer) const { return has_relay_ && peer == group_.relay; }
  const PeerId& relay() const { return group_.relay; }
  // Of the shards that are summed on the host.
  size_t shard_count() const;
  bool has_given_up() const { return has_given_up_; }

  void OnGiven(Micros now);
  // The relay has sent parameters. Those of one that is given up are late.
  void OnParams(Micros now);
  // True if the answer was waited for. What it lacks is given again, unless it may have been under
  // way when the relay said so; versions that it knows of are pulled.
  bool OnAnswer(Micros now, const Answer& answer);
  void Tick(Micros now);
  Micros NextDeadline() const { return ask_at_; }

 private:
  void GiveUp(Micros now);

  ViewMember& member_;
  CommittedVersions& versions_;
  UnrepliedGradients& gradients_;
  const LaneRequests& requests_;
  HostGroup group_;
  bool has_relay_ = false;  // another worker than this one
  bool has_given_up_ = false;
  Micros ask_at_ = kNever;
  std::optional<Micros> asked_since_;  // the first question that is not answered
};

}  // namespace pando
