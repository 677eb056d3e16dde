#include "common/time_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <tuple>

namespace pando {
namespace {

constexpr uint64_t kShortNs = 100'000;  // Linux's minimum
constexpr uint64_t kUsualNs = 0;        // the system's default

// The kernel's struct sched_attr, first version. C libraries before glibc 2.41 do not declare it.
struct SchedAttr {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns;  // of ordinary threads: the slice
  uint64_t deadline_ns;
  uint64_t period_ns;
};

// Errors are ignored: this affects speed alone.
void SetSlice(uint64_t slice_ns, uint32_t policy) {
  constexpr pid_t kThisThread = 0;
  constexpr unsigned kNoFlags = 0;
  SchedAttr attr{};
  if (syscall(SYS_sched_getattr, kThisThread, &attr, sizeof(attr), kNoFlags) != 0) return;
  if (attr.policy != SCHED_OTHER) return;  // the user has chosen a policy (chrt)
  attr.policy = policy;
  attr.runtime_ns = slice_ns;
  std::ignore = syscall(SYS_sched_setattr, kThisThread, &attr, kNoFlags);
}

}  // namespace

void TakeShortTimeSlices() { SetSlice(kShortNs, SCHED_OTHER); }
void TakeBatchTimeSlices() { SetSlice(kUsualNs, SCHED_BATCH); }

}  // namespace pando
