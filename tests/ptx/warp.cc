#include "tests/ptx/warp.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "common/check.h"
#include "tests/ptx/block.h"

namespace pando::ptx {
namespace {

constexpr size_t kAlignmentBytes = 64;

uint32_t FirstLane(uint32_t lanes) { return static_cast<uint32_t>(std::countr_zero(lanes)); }

void FillLanes(std::byte* to, uint32_t bytes, uint64_t bits) {
  const auto fill = [to, bits]<class T>(T) {
    std::fill_n(reinterpret_cast<T*>(to), kWarpLanes, static_cast<T>(bits));
  };
  if (bytes == 2) return fill(uint16_t{});
  if (bytes == 4) return fill(uint32_t{});
  fill(bits);
}

}  // namespace

Warp::Warp(const Kernel& kernel, Block& block, uint32_t number, uint32_t lanes)
    : kernel_(kernel),
      block_(block),
      number_(number),
      lanes_(lanes),
      storage_(kernel.register_bytes + kAlignmentBytes),
      defined_(kernel.register_number),
      local_(kernel.local_bytes * kWarpLanes),
      local_valid_(kernel.local_bytes * kWarpLanes) {
  void* at = storage_.data();
  size_t room = storage_.size();
  registers_ =
      static_cast<std::byte*>(std::align(kAlignmentBytes, kernel.register_bytes, at, room));
  PANDO_CHECK(registers_ != nullptr);
  for (const Constant& constant : kernel.constants)
    FillLanes(registers_ + constant.operand.offset, constant.operand.bytes, constant.bits);
}

void Warp::Begin() {
  std::ranges::fill(defined_, 0);
  std::ranges::fill(local_valid_, 0);
  for (const Constant& constant : kernel_.constants) defined_[constant.operand.number] = ~0u;
  SetSpecials();
  groups_ = {{0, lanes_, LaneGroup::State::kReady}};
}

void Warp::SetSpecials() {
  const LaunchSetting& setting = block_.setting();
  const Size3 at = block_.position();
  const auto fill = [this](Special special, uint32_t value) {
    const auto found = kernel_.specials.find(special);
    if (found != kernel_.specials.end())
      std::fill_n(Lanes<uint32_t>(found->second), kWarpLanes, value);
  };
  fill(Special::kThreadsX, setting.block.x);
  fill(Special::kThreadsY, setting.block.y);
  fill(Special::kThreadsZ, setting.block.z);
  fill(Special::kBlockX, at.x);
  fill(Special::kBlockY, at.y);
  fill(Special::kBlockZ, at.z);
  fill(Special::kBlocksX, setting.grid.x);
  fill(Special::kBlocksY, setting.grid.y);
  fill(Special::kBlocksZ, setting.grid.z);
  for (const auto& [special, operand] : kernel_.specials) {
    defined_[operand.number] = ~0u;
    uint32_t* lanes = Lanes<uint32_t>(operand);
    for (uint32_t i = 0; i < kWarpLanes; ++i) {
      const uint32_t thread = Thread(i);
      if (special == Special::kThreadX) lanes[i] = thread % setting.block.x;
      if (special == Special::kThreadY) lanes[i] = thread / setting.block.x % setting.block.y;
      if (special == Special::kThreadZ) lanes[i] = thread / setting.block.x / setting.block.y;
      if (special == Special::kLane) lanes[i] = i;
    }
  }
}

// ------------------------------------------------------------------------------ which lanes go on

void Warp::Run() {
  while (Select()) Execute();
}

// Takes a group that is ready, with the lanes that are at the same place. Returns false if there is
// none.
bool Warp::Select() {
  const LaneGroup* chosen = nullptr;
  uint32_t ready_count = 0;
  const LaneOrder order = block_.setting().lane_order;
  for (const LaneGroup& group : groups_) {
    if (group.state != LaneGroup::State::kReady) continue;
    ++ready_count;
    const bool is_better = chosen == nullptr ||
                           (order == LaneOrder::kLowestFirst && group.place < chosen->place) ||
                           (order == LaneOrder::kHighestFirst && group.place > chosen->place) ||
                           (order == LaneOrder::kRandom && block_.random().Below(ready_count) == 0);
    if (is_better) chosen = &group;
  }
  if (chosen == nullptr) {
    ResolveShuffles();
    return !groups_.empty() && std::ranges::any_of(groups_, [](const LaneGroup& group) {
      return group.state == LaneGroup::State::kReady;
    }) && Select();
  }
  current_ = {chosen->place, 0, LaneGroup::State::kReady};
  std::erase_if(groups_, [this](const LaneGroup& group) {
    if (group.state != LaneGroup::State::kReady || group.place != current_.place) return false;
    current_.lanes |= group.lanes;
    return true;
  });
  merge_place_ = ~0u;
  for (const LaneGroup& group : groups_) {
    if (group.state == LaneGroup::State::kReady && group.place > current_.place)
      merge_place_ = std::min(merge_place_, group.place);
  }
  return true;
}

// Runs the current lanes until another group's turn may come.
void Warp::Execute() {
  const Instruction* code = kernel_.code.data();
  while (Step(code[current_.place])) {
    if (current_.place == merge_place_) return AddGroup(current_);
  }
}

// Returns false if the current lanes are in no group any more, or in others.
bool Warp::Step(const Instruction& instruction) {
  const uint32_t lanes =
      instruction.has_guard ? Guarded(instruction, current_.lanes) : current_.lanes;
  if (instruction.control == Control::kNone) {
    if (lanes != 0) {
      active_ = lanes;
      CheckSources(instruction, lanes);
      instruction.run(*this, instruction);
      for (uint32_t i = 0; i < instruction.to_count; ++i)
        defined_[instruction.to[i].number] |= lanes;
    }
    ++current_.place;
    return true;
  }
  switch (instruction.control) {
    case Control::kBranch:
      return Branch(instruction, lanes);
    case Control::kExit:
      return Exit(lanes);
    case Control::kBarrier:
      PANDO_CHECK(lanes == current_.lanes);  // nvcc makes no barrier with a guard
      AddGroup({current_.place, lanes, LaneGroup::State::kAtBarrier});
      return false;
    case Control::kShuffle:
      PANDO_CHECK(lanes == current_.lanes);
      return Shuffle(instruction, lanes);
    case Control::kNone:
      break;
  }
  return false;
}

uint32_t Warp::Guarded(const Instruction& instruction, uint32_t lanes) {
  if ((defined_[instruction.guard.number] & lanes) != lanes) {
    active_ = lanes;
    ReportUndefined(instruction.guard, lanes);
  }
  const uint32_t values = Predicate(instruction.guard);
  return lanes & (instruction.guard_is_negated ? ~values : values);
}

bool Warp::Branch(const Instruction& instruction, uint32_t lanes) {
  if (lanes == current_.lanes && merge_place_ == ~0u && groups_.empty()) {
    current_.place = instruction.target;
    return true;
  }
  if (lanes == 0) {
    ++current_.place;
    return true;
  }
  AddGroup({instruction.target, lanes, LaneGroup::State::kReady});
  if (lanes != current_.lanes)
    AddGroup({current_.place + 1, current_.lanes & ~lanes, LaneGroup::State::kReady});
  return false;
}

bool Warp::Exit(uint32_t lanes) {
  current_.lanes &= ~lanes;
  ++current_.place;
  return current_.lanes != 0;
}

void Warp::AddGroup(LaneGroup group) {
  for (LaneGroup& other : groups_) {
    if (other.place != group.place || other.state != group.state) continue;
    other.lanes |= group.lanes;
    return;
  }
  groups_.push_back(group);
}

void Warp::PassBarrier() {
  for (LaneGroup& group : groups_) {
    ++group.place;
    group.state = LaneGroup::State::kReady;
  }
}

// --------------------------------------------------------------------------------------- shuffles

// Its operands: value, lane mask, clamp, member lanes. It runs when all members that have not
// exited are here.
bool Warp::Shuffle(const Instruction& instruction, uint32_t lanes) {
  active_ = lanes;
  CheckSources(instruction, lanes);
  const uint32_t members = Lanes<uint32_t>(instruction.from[3])[FirstLane(lanes)];
  uint32_t living = lanes, here = lanes;
  for (const LaneGroup& group : groups_) {
    living |= group.lanes;
    if (group.state == LaneGroup::State::kAtShuffle && group.place == current_.place)
      here |= group.lanes;
  }
  if ((members & living & ~here) != 0) {
    AddGroup({current_.place, lanes, LaneGroup::State::kAtShuffle});
    return false;
  }
  std::erase_if(groups_, [this](const LaneGroup& group) {
    return group.state == LaneGroup::State::kAtShuffle && group.place == current_.place;
  });
  FinishShuffle(instruction, here);
  current_.lanes = here;
  ++current_.place;
  return true;
}

void Warp::FinishShuffle(const Instruction& instruction, uint32_t lanes) {
  active_ = lanes;
  const uint32_t* given = Lanes<uint32_t>(instruction.from[0]);
  const uint32_t* lane_masks = Lanes<uint32_t>(instruction.from[1]);
  const uint32_t* clamps = Lanes<uint32_t>(instruction.from[2]);
  uint32_t values[kWarpLanes] = {};
  uint32_t is_inside = 0;
  ForEachLane(lanes, [&](uint32_t lane) {
    const uint32_t segment = clamps[lane] >> 8 & 0x1f, clamp = clamps[lane] & 0x1f;
    const uint32_t last = (lane & segment) | (clamp & ~segment);
    uint32_t source = lane ^ lane_masks[lane];
    const bool is_in_segment = source <= last;
    if (!is_in_segment) source = lane;
    is_inside |= uint32_t{is_in_segment} << lane;
    if ((lanes >> source & 1) == 0)
      Report("a shuffle from an inactive lane", lane, "from lane " + std::to_string(source));
    values[lane] = given[source];
  });
  Store(instruction.to[0], values);
  defined_[instruction.to[0].number] |= lanes;
  if (instruction.to_count < 2) return;
  uint32_t& predicate = Predicate(instruction.to[1]);
  predicate = (predicate & ~lanes) | is_inside;
  defined_[instruction.to[1].number] |= lanes;
}

// No lane can go on: those at a shuffle wait for lanes that do not come.
void Warp::ResolveShuffles() {
  for (LaneGroup& group : groups_) {
    if (group.state != LaneGroup::State::kAtShuffle) continue;
    current_ = group;
    Report("a shuffle that some of its lanes do not reach", FirstLane(group.lanes));
    FinishShuffle(kernel_.code[group.place], group.lanes);
    ++group.place;
    group.state = LaneGroup::State::kReady;
  }
}

// ----------------------------------------------------------------------------------------- checks

void Warp::CheckSources(const Instruction& instruction, uint32_t lanes) {
  for (uint32_t i = 0; i < instruction.from_count; ++i) {
    const uint32_t defined = defined_[instruction.from[i].number];
    if ((defined & lanes) != lanes) [[unlikely]]
      ReportUndefined(instruction.from[i], lanes);
  }
}

void Warp::ReportUndefined(const Operand& operand, uint32_t lanes) {
  const uint32_t undefined = lanes & ~defined_[operand.number];
  Report("a register that was never written", FirstLane(undefined));
}

void Warp::Report(const char* kind, uint32_t lane, const std::string& detail) const {
  const Size3 at = block_.position();
  const std::string where = "block (" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " +
                            std::to_string(at.z) + "), thread " + std::to_string(Thread(lane));
  TheFindings().Add(kind, kernel_.name, kernel_.lines[kernel_.code[current_.place].line],
                    detail.empty() ? where : where + ": " + detail);
}

std::byte* Warp::AccessParameter(uint32_t lane, uint64_t address, uint32_t bytes) {
  if (!IsAligned(lane, address, bytes)) return nullptr;
  if (address < kernel_.parameter_bytes && bytes <= kernel_.parameter_bytes - address)
    return block_.setting().parameters.data() + address;
  Report("an access beyond the parameters", lane);
  return nullptr;
}

std::byte* Warp::AccessLocal(uint32_t lane, uint64_t address, uint32_t bytes, bool is_store) {
  if (!IsAligned(lane, address, bytes)) return nullptr;
  if (address >= kernel_.local_bytes || bytes > kernel_.local_bytes - address) {
    Report("an access beyond the local memory", lane);
    return nullptr;
  }
  uint8_t* valid = local_valid_.data() + lane * kernel_.local_bytes + address;
  for (uint32_t i = 0; i < bytes; ++i) {
    if (is_store) valid[i] = 1;
    if (valid[i] == 0) {
      Report("a load from local memory that was never written", lane);
      break;
    }
  }
  return local_.data() + lane * kernel_.local_bytes + address;
}

}  // namespace pando::ptx
