#include "worker/allreduce/group_steps.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "proto/assignment.h"

namespace pando {

void GroupSteps::Join() {
  whole_ = group_->restore.version;
  std::ranges::fill(made_, whole_);
  next_ = StepReading(whole_);
}

std::vector<MicroBatch> GroupSteps::Share(Step step) const {
  return AssignedTo(*group_, member_.self().node, step, plan_.steps.Tree(step));
}

void GroupSteps::Advance() {
  const Step end(std::min(whole_.value() + kInHandMax, plan_.steps.step_count()));
  for (; next_ < end; next_ = NextStep(next_)) {
    std::vector<MicroBatch> share = Share(next_);
    if (share.empty()) continue;  // a short batch has none for us
    ++open_calls_;
    compute_.Compute(next_, std::move(share));
  }
}

void GroupSteps::OnStepComputed(Micros now) {
  PANDO_CHECK(open_calls_ > 0);
  --open_calls_;
  waiting_since_ = now;
}

bool GroupSteps::OnMade(Micros now, ShardId shard, Version version) {
  Version& made = made_[shard.value()];
  PANDO_CHECK(version == VersionMadeBy(StepReading(made)));
  made = version;
  if (*std::ranges::min_element(made_) != version) return false;
  whole_ = version;
  waiting_since_ = now;
  return true;
}

}  // namespace pando
