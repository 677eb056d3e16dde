// A block: its warps, its barrier and its shared memory with the accesses that races are found by.
// Launch runs one after the other.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "tests/ptx/device_memory.h"
#include "tests/ptx/kernel.h"
#include "tests/ptx/random.h"
#include "tests/ptx/warp.h"

namespace pando::ptx {

struct Size3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// The setting that all blocks of a launch have in common.
struct LaunchSetting {
  const Kernel& kernel;
  DeviceMemory& memory;
  Size3 grid;
  Size3 block;
  std::vector<std::byte> parameters;
  LaneOrder lane_order = LaneOrder::kLowestFirst;
  uint32_t first_stamp = 0;  // of DeviceMemory
};

class Block {
 public:
  Block(LaunchSetting& setting, Random& random);

  // Runs all threads to their end. `stamp` is the block's in DeviceMemory.
  void Run(Size3 position, uint32_t stamp);

  // ---- for warps
  LaunchSetting& setting() { return setting_; }
  Random& random() { return random_; }
  Size3 position() const { return position_; }
  // The place in the interpreter's memory, or null after a finding.
  std::byte* AccessShared(Warp& warp, uint32_t lane, uint64_t address, uint32_t bytes,
                          bool is_store);
  std::byte* AccessGlobal(Warp& warp, uint32_t lane, uint64_t address, uint32_t bytes,
                          bool is_store);

 private:
  // The accesses to the smallest piece of shared memory that the kernel accesses. An epoch lasts
  // from a barrier to the next one, in any block.
  struct Cell {
    uint64_t write_epoch = 0;
    uint64_t read_epoch = 0;
    uint32_t writer = 0;
    uint32_t reader = 0;
  };
  static constexpr uint32_t kManyReaders = ~0u;

  bool IsInVariable(uint64_t address, uint32_t bytes) const;
  void NoteSharedStore(Warp& warp, uint32_t lane, Cell& cell);
  void NoteSharedLoad(Warp& warp, uint32_t lane, Cell& cell);
  bool RunWarps();
  void CheckBarrier();

  LaunchSetting& setting_;
  Random& random_;
  std::deque<Warp> warps_;
  std::vector<uint32_t> order_;
  std::vector<std::byte> shared_;
  std::vector<Cell> cells_;
  uint64_t epoch_ = 1;
  uint64_t first_epoch_ = 1;  // of this block
  Size3 position_;
  uint32_t stamp_ = 0;
};

}  // namespace pando::ptx
