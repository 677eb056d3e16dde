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
  [[gnu::cold]] static void ReportRace(Warp& warp, uint32_t lane, const char* access,
                                       const char* earlier, uint32_t other);
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

[[gnu::always_inline]] inline std::byte* Block::AccessGlobal(Warp& warp, uint32_t lane,
                                                             uint64_t address, uint32_t bytes,
                                                             bool is_store) {
  if (!warp.IsAligned(lane, address, bytes)) return nullptr;
  DeviceMemory& memory = setting_.memory;
  const DeviceMemory::Allocation* allocation = memory.Find(address);
  // No address is near 2^64.
  if (allocation == nullptr || address + bytes > allocation->end) [[unlikely]] {
    warp.Report(is_store ? "a store beyond the allocated memory"
                         : "a load from beyond the allocated memory",
                lane, [=] {
                  if (allocation == nullptr) return std::string("no array is there");
                  return std::to_string(address + bytes - allocation->end) +
                         " bytes beyond the array's end";
                });
    return nullptr;
  }
  if (!is_store && !memory.IsValid(address, bytes)) [[unlikely]]
    warp.Report("a load of bytes that were never written", lane, [=] {
      return std::to_string(address - allocation->begin) + " bytes from the array's begin";
    });
  const uint32_t shift = setting_.kernel.access_shift;
  const uint32_t launch = setting_.first_stamp;
  for (uint32_t i = 0; i < bytes; i += 1u << shift) {
    DeviceMemory::Stamps& stamps = memory.StampsAt(address + i, shift);
    const bool is_written = stamps.writer >= launch && stamps.writer != stamp_;
    const bool is_read = stamps.reader >= launch && stamps.reader != stamp_;
    if (is_written || (is_store && is_read)) [[unlikely]]
      warp.Report("a race between blocks", lane, [=] {
        return std::string(is_store ? "a store" : "a load") + " after another block's " +
               (is_written ? "store" : "load");
      });
    if (is_store) {
      stamps.writer = stamp_;
    } else {
      stamps.reader = is_read ? launch : stamp_;
    }
  }
  if (is_store) memory.MakeValid(address, bytes);
  return memory.View(address);
}

}  // namespace pando::ptx
