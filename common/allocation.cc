#include "common/allocation.h"

#include <malloc.h>

#include <tuple>

namespace pando {
namespace {

// Larger blocks are mapped anyway: 32 MiB is glibc's maximum here. Setting it also stops glibc from
// moving both thresholds.
constexpr int kMappedFromBytes = 32 << 20;
constexpr int kKeptBytesMax = 1 << 30;  // in each of malloc's arenas

}  // namespace

void KeepFreedMemory() {
  // A sanitizer's malloc ignores options, which does no harm.
  std::ignore = mallopt(M_MMAP_THRESHOLD, kMappedFromBytes);
  std::ignore = mallopt(M_TRIM_THRESHOLD, kKeptBytesMax);
}

}  // namespace pando
