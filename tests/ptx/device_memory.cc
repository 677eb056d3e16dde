#include "tests/ptx/device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "common/check.h"
#include "tests/ptx/findings.h"

namespace pando::ptx {
namespace {

// Pages that are never touched take no memory.
template <class T>
T* Reserve(uint64_t count) {
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PANDO_CHECK(memory != MAP_FAILED);
  return static_cast<T*>(memory);
}

}  // namespace

DeviceMemory::DeviceMemory() {
  file_ = memfd_create("gpu", MFD_CLOEXEC);
  PANDO_CHECK(file_ >= 0 && ftruncate(file_, kArenaBytes) == 0);
  const auto map = [this](int protection) {
    void* memory = mmap(nullptr, kArenaBytes, protection, MAP_SHARED | MAP_NORESERVE, file_, 0);
    PANDO_CHECK(memory != MAP_FAILED);
    return static_cast<std::byte*>(memory);
  };
  base_address_ = reinterpret_cast<uint64_t>(map(PROT_NONE));
  view_ = map(PROT_READ | PROT_WRITE);
  valid_ = Reserve<uint8_t>(kArenaBytes / 8);
  pages_ = Reserve<uint32_t>(kArenaBytes / kPageBytes);
  stamps_ = Reserve<Stamps>(kArenaBytes);
}

void* DeviceMemory::Allocate(size_t size_bytes, bool is_managed) {
  const uint64_t pages = size_bytes / kPageBytes + 1;
  PANDO_CHECK(next_offset_ + (pages + 1) * kPageBytes <= kArenaBytes);
  const uint64_t begin = base_address_ + next_offset_;
  allocations_.push_back({begin, begin + size_bytes, is_managed});
  for (uint64_t i = 0; i < pages; ++i)
    pages_[next_offset_ / kPageBytes + i] = static_cast<uint32_t>(allocations_.size());
  std::memset(view_ + next_offset_, 0xff, size_bytes);  // means nothing
  if (is_managed) {                                     // the host may write it at any time
    PANDO_CHECK(
        mprotect(reinterpret_cast<void*>(begin), pages * kPageBytes, PROT_READ | PROT_WRITE) == 0);
    SetValid(begin, size_bytes, true);
  }
  next_offset_ += (pages + 1) * kPageBytes;
  return reinterpret_cast<void*>(begin);
}

void DeviceMemory::Free(void* memory) {
  const auto begin = reinterpret_cast<uint64_t>(memory);
  PANDO_CHECK(IsDevice(memory));
  const uint64_t offset = Offset(memory);
  const uint32_t number = pages_[offset / kPageBytes];
  PANDO_CHECK(number > 0 && allocations_[number - 1].begin == begin);
  const Allocation allocation = allocations_[number - 1];
  const uint64_t pages = (allocation.end - begin) / kPageBytes + 1, bytes = pages * kPageBytes;
  std::memset(pages_ + offset / kPageBytes, 0, pages * sizeof(uint32_t));
  PANDO_CHECK(fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0);
  if (allocation.is_managed) PANDO_CHECK(mprotect(memory, bytes, PROT_NONE) == 0);
  for (uint32_t shift = 0; shift <= 4; ++shift) {
    const uint64_t first = (offset >> shift) * sizeof(Stamps),
                   last = first + (bytes >> shift) * sizeof(Stamps);
    const uint64_t first_page = (first + kPageBytes - 1) / kPageBytes * kPageBytes;
    if (last > first_page)
      madvise(reinterpret_cast<std::byte*>(stamps_) + first_page, last - first_page, MADV_DONTNEED);
  }
}

std::byte* DeviceMemory::ForLoad(const void* memory, size_t size_bytes, const std::string& user) {
  const auto address = reinterpret_cast<uint64_t>(memory);
  const Allocation* allocation = Find(address);
  if (allocation == nullptr || address + size_bytes > allocation->end) {
    TheFindings().Add(user + " accesses memory that is not allocated", "", "?",
                      std::to_string(size_bytes) + " bytes");
    std::abort();
  }
  if (!AreValid(address, size_bytes))
    TheFindings().Add(user + " reads bytes that were never written", "", "?",
                      std::to_string(size_bytes) + " bytes");
  return View(address);
}

std::byte* DeviceMemory::ForStore(void* memory, size_t size_bytes, const std::string& user) {
  const auto address = reinterpret_cast<uint64_t>(memory);
  if (Find(address) != nullptr && address + size_bytes <= Find(address)->end)
    SetValid(address, size_bytes, true);
  return ForLoad(memory, size_bytes, user);
}

void DeviceMemory::SetValid(uint64_t begin, uint64_t size_bytes, bool is_valid) {
  uint64_t at = begin - base_address_;
  const uint64_t end = at + size_bytes;
  const auto set = [&](uint64_t i) {
    const auto bit = static_cast<uint8_t>(1 << i % 8);
    valid_[i / 8] = static_cast<uint8_t>(is_valid ? valid_[i / 8] | bit : valid_[i / 8] & ~bit);
  };
  while (at < end && at % 8 != 0) set(at++);
  std::memset(valid_ + at / 8, is_valid ? 0xff : 0, (end - at) / 8);
  for (at += (end - at) / 8 * 8; at < end; ++at) set(at);
}

bool DeviceMemory::AreValid(uint64_t begin, uint64_t size_bytes) const {
  uint64_t at = begin;
  const uint64_t end = begin + size_bytes;
  while (at < end) {
    const bool is_whole = (at - base_address_) % 8 == 0 && end - at >= 8;
    if (!IsValid(at, is_whole ? 8 : 1)) return false;
    at += is_whole ? 8 : 1;
  }
  return true;
}

uint32_t DeviceMemory::TakeStamps(uint64_t block_count) {
  const uint64_t first = next_stamp_;
  next_stamp_ += block_count + 1;
  PANDO_CHECK(next_stamp_ <= UINT32_MAX);
  return static_cast<uint32_t>(first);
}

}  // namespace pando::ptx
