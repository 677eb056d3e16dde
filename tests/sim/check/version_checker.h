// VersionChecker: what versions are shown, committed and held, by shard (I2, I4, I5, I6, P4, P32).
// Part of Checker.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tests/sim/check/disturbances.h"
#include "tests/sim/check/verdict.h"

namespace pando::sim {

class VersionChecker {
 public:
  // All outlive it.
  VersionChecker(const Truth& truth, const Processes& processes, Verdict& verdict)
      : truth_(truth), plan_(truth.plan()), processes_(processes), verdict_(verdict) {}

  // The journal's newest view.
  void SetView(const View& view) { view_ = view; }
  // By the journal's evaluations: versions up to here are to be made.
  void SetDecided(Version decided) { decided_ = decided; }
  // The journal's view is not the newest one: replicas hold what that one says.
  void NoteLostView() { lost_generation_ = generation(); }
  const std::optional<View>& view() const { return view_; }
  uint32_t generation() const { return view_ ? view_->generation : 0; }

  void CheckPush(const Envelope& envelope, const Push& push);
  void CheckParams(const Envelope& envelope, const Params& params);
  void OnLaneEvent(const Lane& lane);
  void OnSessionEvent(const Session& session);
  // I2 of all shards.
  void CheckAllHeld();

 private:
  struct Shown {                     // of one generation
    std::vector<Version> shown;      // by shard: newest in any Params
    std::vector<Version> committed;  // by shard: newest that a primary called so
    Version everywhere;              // lowest of them
  };
  enum class Holds : uint8_t { kYes, kNo, kLost };
  Shown& ShownIn(uint32_t generation);
  Holds HoldsVersion(const PeerId& peer, ShardId shard, Version version) const;
  void CheckHeld(ShardId shard);

  const Truth& truth_;
  const JobPlan& plan_;
  const Processes& processes_;
  Verdict& verdict_;
  std::optional<uint32_t> lost_generation_;
  std::optional<View> view_;
  std::map<uint32_t, Shown> shown_;
  Version decided_;
  uint64_t lane_events_ = 0;
};

}  // namespace pando::sim
