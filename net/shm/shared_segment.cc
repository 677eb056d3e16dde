#include "net/shm/shared_segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace pando {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status NoSegment(const char* what) {
  return Unavailable(fmt::format("no shared memory: {}: {}", what, std::strerror(errno)));
}

// Readers write words, so the mapping is writable.
std::byte* MapWhole(int fd, size_t size_bytes) {
  void* base = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

}  // namespace

Result<SharedSegment> SharedSegment::Create(size_t data_bytes) {
  const size_t size_bytes = kSharedWordsBytes + data_bytes;
  UniqueFd fd(memfd_create("pando", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open()) return NoSegment("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) return NoSegment("ftruncate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return NoSegment("F_ADD_SEALS");
  std::byte* base = MapWhole(fd.get(), size_bytes);
  if (base == nullptr) return NoSegment("mmap");
  return SharedSegment(std::move(fd), base, size_bytes);
}

Result<SharedSegment> SharedSegment::Map(UniqueFd fd, uint64_t size_bytes) {
  struct stat facts {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return Corrupt("a segment that is not sealed");
  struct statfs system {};
  if (fstat(fd.get(), &facts) != 0 || fstatfs(fd.get(), &system) != 0) return NoSegment("fstat");
  // A read of huge pages can fault.
  if (system.f_type != TMPFS_MAGIC) return Corrupt("a segment that is not ordinary memory");
  const bool is_size = size_bytes > kSharedWordsBytes && size_bytes <= kSharedSegmentBytesMax &&
                       static_cast<uint64_t>(facts.st_size) == size_bytes;
  if (!is_size) {
    return Corrupt(fmt::format("a segment of {} bytes instead of {}", facts.st_size, size_bytes));
  }
  std::byte* base = MapWhole(fd.get(), size_bytes);
  if (base == nullptr) return NoSegment("mmap");
  SharedSegment segment(UniqueFd(), base, size_bytes);
  if (mprotect(base + kSharedWordsBytes, size_bytes - kSharedWordsBytes, PROT_READ) != 0)
    return NoSegment("mprotect");
  return segment;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : fd_(std::move(other.fd_)),
      base_(std::exchange(other.base_, nullptr)),
      size_bytes_(other.size_bytes_) {}

SharedSegment::~SharedSegment() {
  if (base_ != nullptr) munmap(base_, size_bytes_);
}

}  // namespace pando
