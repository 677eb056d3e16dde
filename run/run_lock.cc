#include "run/run_lock.h"

#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "common/atomic_file.h"
#include "common/system.h"
#include "job/job_file.h"

namespace pando {
namespace {

// Returns the text of the lock file.
std::string HolderText(pid_t pid) { return fmt::format("process {} on {}", pid, HostName()); }

// Returns whether the holder is a process of this machine that is ending: its main thread is gone,
// or a SIGKILL is pending. Its other threads, and its locks, may stay a moment longer.
bool IsDying(const std::string& holder) {
  int pid = 0;
  if (std::sscanf(holder.c_str(), "process %d on ", &pid) != 1) return false;
  if (holder != fmt::format("process {} on {}", pid, HostName())) return false;
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("State:") && line.find_first_of("ZX", 6) != std::string::npos) return true;
    if (!line.starts_with("SigPnd:")) continue;
    return (std::strtoull(line.c_str() + 7, nullptr, 16) >> (SIGKILL - 1) & 1) != 0;
  }
  return false;
}

}  // namespace

Result<RunLock> RunLock::Acquire(const std::string& run_dir, std::chrono::milliseconds dying_max) {
  constexpr std::chrono::milliseconds kLookInterval(10);
  const std::string path = run_dir + "/.lock";
  PANDO_ASSIGN_OR_RETURN(UniqueFd fd, OpenForOwner(path));
  const auto deadline = std::chrono::steady_clock::now() + dying_max;
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FileError("lock", path, errno);
    std::array<char, 256> holder{};
    const bool is_known = pread(fd.get(), holder.data(), holder.size() - 1, 0) > 0;
    if (is_known && IsDying(holder.data()) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kLookInterval);
      continue;
    }
    return AlreadyExists(fmt::format(
        "the run in {} is led by {} already; stop that one first, or take another --run-dir",
        run_dir, is_known ? holder.data() : "another scheduler"));
  }
  // The text names this process in the error of another one. The lock works without the text, even
  // on a full disk.
  const std::string text = HolderText(getpid());
  if (ftruncate(fd.get(), 0) == 0) (void)!pwrite(fd.get(), text.data(), text.size(), 0);
  return RunLock(std::move(fd));
}

std::optional<pid_t> RunLock::FindHolder(const std::string& run_dir) {
  const Result<RunLock> lock = Acquire(run_dir, std::chrono::milliseconds(0));
  if (lock.status().code() != StatusCode::kAlreadyExists) return std::nullopt;
  const Result<std::string> text = ReadTextFile(run_dir + "/.lock");
  pid_t pid = 0;
  const bool is_here = text.ok() && std::sscanf(text->c_str(), "process %d on", &pid) == 1 &&
                       *text == HolderText(pid);
  return is_here ? std::optional(pid) : std::nullopt;
}

}  // namespace pando
