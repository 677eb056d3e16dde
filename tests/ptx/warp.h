// A warp: the registers and places of its 32 lanes. Block runs it.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/ptx/findings.h"
#include "tests/ptx/kernel.h"
#include "tests/ptx/random.h"

namespace pando::ptx {

class Block;

// Which lanes go on where a warp diverged.
enum class LaneOrder : uint8_t { kLowestFirst, kHighestFirst, kRandom };

template <class F>
void ForEachLane(uint32_t lanes, F&& f) {
  for (; lanes != 0; lanes &= lanes - 1) f(static_cast<uint32_t>(std::countr_zero(lanes)));
}

// Lanes at one instruction.
struct LaneGroup {
  enum class State : uint8_t { kReady, kAtBarrier, kAtShuffle };
  uint32_t place = 0;
  uint32_t lanes = 0;
  State state = State::kReady;
};

class Warp {
 public:
  // `number` is its place in the block, and `lanes` the threads that it has.
  Warp(const Kernel& kernel, Block& block, uint32_t number, uint32_t lanes);

  // Begins with the kernel's first instruction. Called when the block's position is known.
  void Begin();
  // Runs until all lanes have exited or wait at a barrier.
  void Run();
  // The lanes that wait at a barrier go on.
  void PassBarrier();
  bool IsDone() const { return groups_.empty(); }
  std::span<const LaneGroup> groups() const { return groups_; }

  // ---- for handlers
  template <class T>
  T* Lanes(const Operand& operand) {
    return reinterpret_cast<T*>(registers_ + operand.offset);
  }
  uint32_t& Predicate(const Operand& operand) { return *Lanes<uint32_t>(operand); }
  uint32_t active() const { return active_; }
  // Stores the active lanes' values.
  template <class T>
  void Store(const Operand& to, const T (&values)[kWarpLanes]);

  // The place in the interpreter's memory, or null after a finding.
  std::byte* AccessParameter(uint32_t lane, uint64_t address, uint32_t bytes);
  std::byte* AccessLocal(uint32_t lane, uint64_t address, uint32_t bytes, bool is_store);
  Block& block() { return block_; }
  uint32_t Thread(uint32_t lane) const { return number_ * kWarpLanes + lane; }
  void Report(const char* kind, uint32_t lane, const std::string& detail = "") const;
  // The same for code that often runs: `detail` returns the text, which costs nothing before.
  template <class F>
  requires std::is_invocable_v<F>
  [[gnu::cold, gnu::noinline]] void Report(const char* kind, uint32_t lane, F detail) const {
    Report(kind, lane, detail());
  }
  // REQUIRES: bytes is a power of two.
  bool IsAligned(uint32_t lane, uint64_t address, uint32_t bytes) const {
    const uint64_t rest = address & (bytes - 1);
    if (rest == 0) return true;
    Report("a misaligned access", lane, [=] {
      return std::to_string(bytes) + " bytes, " + std::to_string(rest) + " beyond a multiple";
    });
    return false;
  }

 private:
  void SetSpecials();
  bool Select();
  void Execute();
  bool Step(const Instruction& instruction);
  bool Branch(const Instruction& instruction, uint32_t lanes);
  bool Exit(uint32_t lanes);
  bool Shuffle(const Instruction& instruction, uint32_t lanes);
  void FinishShuffle(const Instruction& instruction, uint32_t lanes);
  void ResolveShuffles();
  void AddGroup(LaneGroup group);
  void CheckSources(const Instruction& instruction, uint32_t lanes);
  void ReportUndefined(const Operand& operand, uint32_t lanes);
  uint32_t Guarded(const Instruction& instruction, uint32_t lanes);

  const Kernel& kernel_;
  Block& block_;
  const uint32_t number_;
  const uint32_t lanes_;
  std::vector<std::byte> storage_;
  std::byte* registers_;           // in storage_, aligned to 64 bytes
  std::vector<uint32_t> defined_;  // by register: the lanes that have written it
  std::vector<std::byte> local_;   // [lane, bytes]
  std::vector<uint8_t> local_valid_;
  std::vector<LaneGroup> groups_;
  LaneGroup current_;
  uint32_t merge_place_ = 0;  // the next place at which lanes wait for their turn
  uint32_t active_ = 0;       // the lanes that execute the current instruction
};

template <class T>
void Warp::Store(const Operand& to, const T (&values)[kWarpLanes]) {
  T* lanes = Lanes<T>(to);
  if (active_ == ~0u) {
    std::memcpy(lanes, values, sizeof(values));
    return;
  }
  for (uint32_t i = 0; i < kWarpLanes; ++i)
    lanes[i] = (active_ >> i & 1) != 0 ? values[i] : lanes[i];
}

}  // namespace pando::ptx
