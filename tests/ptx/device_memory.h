// The GPU's memory. The host sees only its addresses: a page that it touches faults, unless the
// memory is managed. The interpreter sees the same memory elsewhere, and knows of each byte whether
// it was written, and of each block which bytes it accessed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pando::ptx {

// Threads: one at a time.
class DeviceMemory {
 public:
  struct Allocation {
    uint64_t begin = 0;
    uint64_t end = 0;
    bool is_managed = false;
  };

  DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // An address is never used twice.
  void* Allocate(size_t size_bytes, bool is_managed);
  void Free(void* memory);
  // The live allocation that has the address, or null. An allocation invalidates it.
  const Allocation* Find(uint64_t address) const {
    const uint64_t offset = address - base_address_;
    if (offset >= kArenaBytes) return nullptr;
    const uint32_t number = pages_[offset / kPageBytes];
    return number == 0 ? nullptr : &allocations_[number - 1];
  }
  bool IsDevice(const void* address) const { return Offset(address) < kArenaBytes; }
  // Where the interpreter and the libraries in place of NVIDIA's see it. Reports a range that is
  // not within a live allocation; `user` says whose.
  std::byte* ForLoad(const void* memory, size_t size_bytes, const std::string& user);
  // The same, and the bytes become valid.
  std::byte* ForStore(void* memory, size_t size_bytes, const std::string& user);

  // ---- for kernels
  // REQUIRES: within an allocation.
  std::byte* View(uint64_t address) { return view_ + (address - base_address_); }
  // REQUIRES: as View, aligned to bytes, a power of two up to 16.
  bool IsValid(uint64_t address, uint32_t bytes) const {
    const uint64_t offset = address - base_address_;
    if (bytes == 16) return valid_[offset / 8] == 0xff && valid_[offset / 8 + 1] == 0xff;
    const uint32_t mask = (1u << bytes) - 1;
    return (valid_[offset / 8] >> offset % 8 & mask) == mask;
  }
  void MakeValid(uint64_t address, uint32_t bytes) {
    const uint64_t offset = address - base_address_;
    if (bytes == 16) {
      valid_[offset / 8] = valid_[offset / 8 + 1] = 0xff;
    } else {
      valid_[offset / 8] |= static_cast<uint8_t>(((1u << bytes) - 1) << offset % 8);
    }
  }

  // A stamp is a block of a launch, or, the launch's first one, "several blocks".
  struct Stamps {
    uint32_t writer = 0;
    uint32_t reader = 0;
  };
  // Takes the stamps of a launch: the first one, and one for each block.
  uint32_t TakeStamps(uint64_t block_count);
  // The stamps of a piece of 2^shift bytes.
  Stamps& StampsAt(uint64_t address, uint32_t shift) {
    return stamps_[(address - base_address_) >> shift];
  }

 private:
  static constexpr uint64_t kArenaBytes = uint64_t{64} << 30;
  static constexpr uint64_t kPageBytes = 4096;

  uint64_t Offset(const void* address) const {
    return reinterpret_cast<uint64_t>(address) - base_address_;
  }
  void SetValid(uint64_t begin, uint64_t size_bytes, bool is_valid);
  bool AreValid(uint64_t begin, uint64_t size_bytes) const;

  int file_ = -1;
  uint64_t base_address_ = 0;
  std::byte* view_ = nullptr;
  uint8_t* valid_ = nullptr;   // a bit for each byte
  uint32_t* pages_ = nullptr;  // the allocation of each page, plus 1
  Stamps* stamps_ = nullptr;
  std::vector<Allocation> allocations_;
  uint64_t next_offset_ = kPageBytes;
  uint64_t next_stamp_ = 1;
};

}  // namespace pando::ptx
