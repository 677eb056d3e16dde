#include "common/cgroup.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "tests/temp_folder.h"

namespace pando {
namespace {

// /proc and /sys of a process in a control group.
class Root {
 public:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = temp_.path() + "/" + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  CgroupLimits Read() const { return ReadCgroup(temp_.path()); }

 private:
  TempFolder temp_;
};

TEST_CASE("limits of cgroups version 2 are read") {
  Root root;
  root.Write("proc/self/cgroup", "0::/run/job\n");
  root.Write("sys/fs/cgroup/run/job/memory.max", "419430400\n");
  root.Write("sys/fs/cgroup/run/job/memory.events", "low 0\noom 2\noom_kill 3\n");
  root.Write("sys/fs/cgroup/run/job/cpu.max", "150000 100000\n");
  const CgroupLimits limits = root.Read();
  CHECK(limits.memory_bytes == 419430400);
  CHECK(limits.cpus == 1.5);
  CHECK(limits.oom_kill_count == 3);
}

TEST_CASE("limits of cgroups version 1 are read, also where the path is the host's") {
  Root root;
  root.Write("proc/self/cgroup", "5:memory:/docker/4f1c\n3:cpu,cpuacct:/docker/4f1c\n0::/\n");
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  root.Write("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\noom_kill 1\n");
  root.Write("sys/fs/cgroup/cpu/docker/4f1c/cpu.cfs_quota_us", "200000\n");
  root.Write("sys/fs/cgroup/cpu/docker/4f1c/cpu.cfs_period_us", "100000\n");
  const CgroupLimits limits = root.Read();
  CHECK(limits.memory_bytes == 1073741824);
  CHECK(limits.cpus == 2.0);
  CHECK(limits.oom_kill_count == 1);
}

TEST_CASE("the strictest limit of the groups around counts") {
  Root root;
  root.Write("proc/self/cgroup", "0::/slurm/job_7/task_0\n");
  root.Write("sys/fs/cgroup/slurm/job_7/task_0/memory.max", "max\n");
  root.Write("sys/fs/cgroup/slurm/job_7/memory.max", "1000000\n");
  root.Write("sys/fs/cgroup/slurm/memory.max", "2000000\n");
  root.Write("sys/fs/cgroup/slurm/job_7/task_0/cpu.max", "max 100000\n");
  root.Write("sys/fs/cgroup/slurm/cpu.max", "400000 100000\n");
  CHECK(root.Read().memory_bytes == 1000000);
  CHECK(root.Read().cpus == 4.0);
}

TEST_CASE("no limit is none") {
  Root root;
  SUBCASE("nothing is there") {}
  SUBCASE("version 2") {
    root.Write("proc/self/cgroup", "0::/\n");
    root.Write("sys/fs/cgroup/memory.max", "max\n");
    root.Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  }
  SUBCASE("version 1") {
    root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    root.Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    root.Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  }
  const CgroupLimits limits = root.Read();
  CHECK_FALSE(limits.memory_bytes);
  CHECK_FALSE(limits.cpus);
  CHECK(limits.oom_kill_count == 0);
  CHECK(UsableCores() >= 1);
}

TEST_CASE("cores that the process may not use do not count") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(UsableCores() == 1);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

}  // namespace
}  // namespace pando
