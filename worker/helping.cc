#include "worker/helping.h"

#include <utility>

#include "proto/assignment.h"

namespace pando {

// Whether this is a member without a step in the works, and the run has further steps.
bool Helping::IsIdle() const {
  if (!steps_.has_started() || !lifecycle_.is_member() || !steps_.works().empty()) return false;
  return versions_.everywhere().value() < plan_.steps.step_count();
}

// Whether our part of the lowest incomplete step, and of all that waits for no version, is done, so
// that only others' parts are missing.
bool Helping::IsWaiting() const {
  if (IsIdle()) return true;
  const auto& works = steps_.works();
  if (!steps_.has_started() || works.empty() || steps_.IsComputing()) return false;
  return works.front().step == versions_.lowest_incomplete();
}

void Helping::Tick(Micros now) {
  if (plan_.pushes.has_feedback()) return;  // another worker's gradient would have other bits (P34)
  std::optional<Micros> patience = clock_.patience();
  if (!patience && IsIdle()) patience = StepClock::kPatienceMin;  // to measure steps, not to help
  if (!IsWaiting() || !patience) {
    if (!is_helping_) help_at_ = kNever;
    return;
  }
  if (help_at_ == kNever) help_at_ = now + *patience;
  if (now < help_at_ || questions_.is_open()) return;
  is_helping_ = true;
  questions_.Ask(now);
}

// Computes one micro-batch for each computing thread at a time, and asks again each time. So
// micro-batches that the straggler or another helper sends meanwhile are not computed here.
void Helping::OnAnswered(Micros now) {
  if (!is_helping_ || !IsWaiting()) return;  // our share lacked a part
  const Step step = versions_.lowest_incomplete();
  std::vector<MicroBatch> missing = Missing(step);
  if (missing.empty() || !clock_.patience()) {
    is_helping_ = false;
    help_at_ = now + clock_.patience().value_or(StepClock::kPatienceMin);
    return;
  }
  clock_.Disturb();
  std::ranges::rotate(missing, missing.begin() + static_cast<long>(Offset(missing.size())));
  missing.resize(std::min<size_t>(missing.size(), plan_.job.threads));
  std::ranges::sort(missing);
  steps_.Help(step, std::move(missing));
}

std::vector<MicroBatch> Helping::Missing(Step step) const {
  std::vector<MicroBatch> missing = plan_.steps.Tree(step).PresentLeaves();
  std::erase_if(missing, [&](MicroBatch m) {
    return !questions_.answers().IsMissing(m, step, plan_.steps) || steps_.IsIssued(step, m) ||
           IsForItsVerifier(step, m);
  });
  return missing;
}

// P46: only two workers' gradients of a verified micro-batch are compared, so no third one may
// count.
bool Helping::IsForItsVerifier(Step step, MicroBatch m) const {
  if (!plan_.IsVerified(step, m) || m.value() >= member_.view().owners.size()) return false;
  const NodeId verifier = FindVerifier(member_.view(), step, m);
  return verifier != kUnknownNode && verifier != member_.self().node;
}

// Where this worker begins among `count` missing micro-batches: at another place than other
// helpers.
size_t Helping::Offset(size_t count) const {
  const auto& nodes = member_.view().nodes;
  const auto self = std::ranges::find(nodes, member_.self().node, &NodeInfo::node);
  const uint32_t our_rank = self == nodes.end() ? 0 : self->rank;
  const auto worker_count = std::ranges::count(nodes, Role::kWorker, &NodeInfo::role);
  const auto lower_rank_count = std::ranges::count_if(nodes, [&](const NodeInfo& node) {
    return node.role == Role::kWorker && node.rank < our_rank;
  });
  return worker_count == 0
             ? 0
             : static_cast<size_t>(lower_rank_count) * count / static_cast<size_t>(worker_count);
}

}  // namespace pando
