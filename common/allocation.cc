#include "common/allocation.h"

#include <malloc.h>

#include <tuple>

namespace pando {
namespace {

// Larger ones are mapped all the same: 32 MiB is the most that glibc takes here. Setting it also
// stops glibc from moving both thresholds by itself.
constexpr int kMappedFromBytes = 32 << 20;
constexpr int kKeptBytesMax = 1 << 30;  // of each of malloc's arenas

}  // namespace

void KeepFreedMemory() {
  // A sanitizer's malloc takes no options, which is as well.
  std::ignore = mallopt(M_MMAP_THRESHOLD, kMappedFromBytes);
  std::ignore = mallopt(M_TRIM_THRESHOLD, kKeptBytesMax);
}

}  // namespace pando
