#include "run/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/host_name.h"

namespace pando {

Result<RunLock> RunLock::Acquire(const std::string& run_dir) {
  const std::string path = run_dir + "/.lock";
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.is_open()) return FileError("open", path, errno);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FileError("lock", path, errno);
    std::array<char, 256> holder{};
    const bool is_known = pread(fd.get(), holder.data(), holder.size() - 1, 0) > 0;
    return AlreadyExists(fmt::format(
        "the run in {} is led by {} already; stop that one first, or take another --run-dir",
        run_dir, is_known ? holder.data() : "another scheduler"));
  }
  // For the error of a process that finds the folder locked. The lock does not need it, and holds
  // on a full disk.
  const std::string text = fmt::format("process {} on {}", getpid(), HostName());
  if (ftruncate(fd.get(), 0) == 0) (void)!pwrite(fd.get(), text.data(), text.size(), 0);
  return RunLock(std::move(fd));
}

}  // namespace pando
