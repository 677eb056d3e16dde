#include "common/system.h"

#include <malloc.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <tuple>

#include "common/check.h"
#include "common/cpu/denormals_kept.h"
#include "common/hash.h"

namespace pando {
namespace {

// malloc maps larger blocks in any case: 32 MiB is glibc's maximum here. Setting this also stops
// glibc from moving both thresholds.
constexpr int kMappedFromBytes = 32 << 20;
constexpr int kKeptBytesMax = 1 << 30;  // in each of malloc's arenas

constexpr uint64_t kShortNs = 100'000;  // Linux's minimum
constexpr uint64_t kUsualNs = 0;        // the system's default

// The kernel's struct sched_attr, first version. C libraries before glibc 2.41 do not declare it.
struct SchedAttr {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns;  // the slice of an ordinary thread
  uint64_t deadline_ns;
  uint64_t period_ns;
};

// Errors are ignored, since this affects only speed.
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

void KeepFreedMemory() {
  // A sanitizer's malloc ignores options, which does no harm.
  std::ignore = mallopt(M_MMAP_THRESHOLD, kMappedFromBytes);
  std::ignore = mallopt(M_TRIM_THRESHOLD, kKeptBytesMax);
}

#if defined(__SSE2__)
constexpr unsigned kFlushToZero = 0x8000;       // FTZ: flushes results
constexpr unsigned kDenormalsAreZero = 0x0040;  // DAZ: flushes operands

void SetFloatEnvironment() { _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero); }

DenormalsKept::DenormalsKept() : control_(_mm_getcsr()) {
  _mm_setcsr(control_ & ~(kFlushToZero | kDenormalsAreZero));
}
DenormalsKept::~DenormalsKept() { _mm_setcsr(control_); }
#else
void SetFloatEnvironment() {}
DenormalsKept::DenormalsKept() = default;
DenormalsKept::~DenormalsKept() = default;
#endif

void TakeShortTimeSlices() { SetSlice(kShortNs, SCHED_OTHER); }
void TakeBatchTimeSlices() { SetSlice(kUsualNs, SCHED_BATCH); }

Incarnation NewIncarnation() {
  uint64_t value = 0;
  while (value == 0) {
    const ssize_t bytes_read = getrandom(&value, sizeof(value), 0);
    PANDO_CHECK(bytes_read == sizeof(value) || errno == EINTR);
  }
  return Incarnation(value);
}

uint64_t ProcessKey() {
  static const uint64_t kKey = [] {
    const char* text = std::getenv(kProcessKeyVariable);
    const uint64_t given = text != nullptr ? ParseHex(text).value_or(0) : 0;
    return given != 0 ? given : NewIncarnation().value();
  }();
  return kKey;
}

void EndWithParent() {
  const char* parent = getenv(kEndsWithVariable);
  if (parent == nullptr) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(getppid()) != parent) {  // it has ended before this line, or is another one
    fmt::print(stderr, "pando: process {}, which {} names, is not this one's parent\n", parent,
               kEndsWithVariable);
    _exit(EXIT_FAILURE);
  }
  unsetenv(kEndsWithVariable);
}

void RaiseFileLimit() {
  constexpr rlim_t kEnough = 1 << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kEnough));
  std::ignore = setrlimit(RLIMIT_NOFILE, &limit);
}

Status CheckFileLimit(uint64_t needed, const std::string& whose) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return Status();
  return InvalidArgument(fmt::format(
      "{} opens at least {} files and sockets, and the system allows {}: raise the limit "
      "(ulimit -n {})",
      whose, needed, limit.rlim_cur, 2 * needed));
}

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

const char* PandoVersion() { return PANDO_VERSION; }

}  // namespace pando
