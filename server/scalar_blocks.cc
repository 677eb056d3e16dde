#include "server/scalar_blocks.h"

#include "server/lane_limits.h"

namespace pando {
namespace {

uint64_t BlockIndex(Step step) { return step.value() / kScalarsPerBlock; }

}  // namespace

void ScalarBlocks::OnScalars(const Scalars& scalars) {
  const uint64_t block = BlockIndex(scalars.first);
  const uint64_t current = BlockIndex(replicas_.lowest_step());
  if (scalars.first.value() % kScalarsPerBlock != 0 || block < current || block > current + 1)
    return;
  std::vector<StepScalars>& known = blocks_[block];
  if (scalars.steps.size() > known.size()) known = scalars.steps;
}

const StepScalars* ScalarBlocks::Find(Step step) const {
  const auto it = blocks_.find(BlockIndex(step));
  const uint64_t index = step.value() % kScalarsPerBlock;
  if (it == blocks_.end() || index >= it->second.size()) return nullptr;
  return &it->second[index];
}

bool ScalarBlocks::LacksAny() const {
  if (replicas_.all().empty()) return false;
  const uint64_t current = BlockIndex(replicas_.lowest_step());
  return IsWanted(current) || IsWanted(current + 1);
}

// Returns whether to ask for the block. A block is short if the scheduler has yet to decide (P32).
bool ScalarBlocks::IsWanted(uint64_t block) const {
  const uint64_t first = block * kScalarsPerBlock;
  if (first >= plan_.steps.step_count()) return false;
  const auto known = blocks_.find(block);
  if (known == blocks_.end()) {
    const auto before = blocks_.find(block - 1);
    return before == blocks_.end() || before->second.size() == kScalarsPerBlock;
  }
  const uint64_t end = first + known->second.size();
  const bool is_whole = known->second.size() == kScalarsPerBlock || end == plan_.steps.step_count();
  return !is_whole && replicas_.highest_step().value() >= end;
}

void ScalarBlocks::Tick(Micros now) {
  if (!member_.has_view() || now < ask_at_ || !LacksAny()) return;
  const uint64_t current = BlockIndex(replicas_.lowest_step());
  std::erase_if(blocks_, [&](const auto& entry) {
    return entry.first < current || entry.first > current + 1;
  });
  for (uint64_t block = current; block <= current + 1; ++block) {
    if (!IsWanted(block)) continue;
    member_.SendToScheduler(ScalarsRequest{Step(block * kScalarsPerBlock)});
    ask_at_ = now + kRetryInterval;
  }
}

}  // namespace pando
