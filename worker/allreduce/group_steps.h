// GroupSteps: which steps a worker of a group has handed to compute, and which versions compute
// has. Used by GroupSession. Threads: none.
#pragma once

#include <optional>
#include <vector>

#include "plan/job_plan.h"
#include "proto/view_member.h"
#include "train/compute_port.h"

namespace pando {

class GroupSteps {
 public:
  // Steps handed out beyond the last whole version: threads that are done with one step begin the
  // next, layer by layer.
  static constexpr uint64_t kInHandMax = 2;

  // `group`: none before the worker has joined. All outlive it.
  GroupSteps(const JobPlan& plan, const ViewMember& member, const std::optional<View>& group,
             ComputePort& compute)
      : plan_(plan),
        member_(member),
        group_(group),
        compute_(compute),
        made_(plan.shards.shard_count()) {}

  // The group begins from its first version.
  void Join();
  // Hands out the steps that may be in hand.
  void Advance();
  void OnStepComputed(Micros now);
  // Compute has the first version whole.
  void OnBegun(Micros now) { waiting_since_ = now; }
  // This shard of a version is with compute; once each, in order. True if the version is whole now.
  bool OnMade(Micros now, ShardId shard, Version version);

  // The version that compute has whole.
  Version whole() const { return whole_; }
  // Whether the lowest step's work is done here.
  bool is_waiting() const { return open_calls_ < next_.value() - whole_.value(); }
  Micros waiting_since() const { return waiting_since_; }

 private:
  std::vector<MicroBatch> Share(Step step) const;

  const JobPlan& plan_;
  const ViewMember& member_;
  const std::optional<View>& group_;
  ComputePort& compute_;
  std::vector<Version> made_;  // by shard
  Version whole_;
  Step next_;  // to hand to compute
  uint32_t open_calls_ = 0;
  Micros waiting_since_{0};
};

}  // namespace pando
