#include "common/system.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <vector>

// These tests need glibc's malloc: sanitizers bring their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace pando {
namespace {

long PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// As if a message had come: the memory of all frames in flight is used, and given back.
void UseAndFree() {
  constexpr size_t kFrames = 8, kBytes = 4 << 20;
  std::vector<void*> frames;
  for (size_t i = 0; i < kFrames; ++i) {
    frames.push_back(malloc(kBytes));
    REQUIRE(frames.back() != nullptr);
    memset(frames.back(), 1, kBytes);
  }
  for (void* frame : frames) free(frame);
}

TEST_CASE("memory that was given back is there again without a page fault") {
  KeepFreedMemory();
  UseAndFree();
  const long before = PageFaults();
  for (int i = 0; i < 4; ++i) UseAndFree();
  CHECK(PageFaults() - before < 100);  // given back to the kernel: 8,192 a turn
}

}  // namespace
}  // namespace pando

#endif
