// Whole runs on a disk that fills up in the middle (P28, P33): they go on, and when a user frees
// some space they end with the weights of the run in which nothing happened.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "tests/e2e/fault_run.h"

namespace pando {
namespace {

constexpr size_t kStepsBeforeFull = 20;

// A file system of 16 MiB, which a run folder with its snapshots takes a tenth of.
class SmallDisk {
 public:
  // In a namespace of this program and its children: the mount ends with them, even if they are
  // killed.
  SmallDisk() {
    if (unshare(CLONE_NEWNS) == 0 &&
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount("tmpfs", path().c_str(), "tmpfs", 0, "size=16m") == 0)
      return;
    std::fprintf(stderr, "SKIPPED: a full disk needs a separate file system, and mount fails: %s\n",
                 std::strerror(errno));
    std::exit(kSkipped);
  }
  ~SmallDisk() { umount2(path().c_str(), MNT_DETACH); }
  SmallDisk(const SmallDisk&) = delete;

  const std::string& path() const { return temp_.path(); }
  void Fill() const {
    const UniqueFd ballast(open(BallastPath().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    REQUIRE(ballast.is_open());
    const std::array<char, 4096> page{};
    while (write(ballast.get(), page.data(), page.size()) > 0) {
    }
    REQUIRE(errno == ENOSPC);
  }
  void Free() const { REQUIRE(unlink(BallastPath().c_str()) == 0); }

 private:
  std::string BallastPath() const { return path() + "/ballast"; }
  TempFolder temp_;
};

// A run on the disk, and what fills that in its middle.
struct DiskRun {
  SmallDisk disk;
  Household household;  // its files are elsewhere
  std::string run_dir = disk.path() + "/run";
  Process train{household.path(), "train", Args{"train", "--run-dir", run_dir} + FaultJob(2, 2)};

  void FillInMidRun() {
    REQUIRE(Becomes([&] { return RowCountIn(run_dir) >= kStepsBeforeFull; }));
    disk.Fill();
    REQUIRE(Becomes([&] { return Contains(train.err(), "rows are held") || Waits(); }));
  }
  // The last page of the rows' file has room for some more: the next snapshot may come first.
  bool Waits() {
    const std::string text = train.err();
    return Contains(text, "waits for its journal") || Contains(text, "until they can be written");
  }
  Summary End() {
    disk.Free();
    train.Await(2 * kEventDeadline);
    INFO(train.err());
    REQUIRE(train.exit_code() == kExitCompleted);
    CHECK(household.Living().empty());
    Summary summary = SummaryIn(run_dir);
    CHECK(summary.status == kStatusCompleted);
    CHECK(summary.weights_hash == SerialHash());
    return summary;
  }
};

TEST_CASE("a run on a full disk waits with its end and lacks nothing" *
          doctest::test_suite("thorough 1")) {
  DiskRun run;
  run.FillInMidRun();
  REQUIRE(Becomes([&] { return run.Waits(); }));
  CHECK(run.End().missing_rows == 0);
  CHECK(RowCountIn(run.run_dir) == kFaultSteps);
}

TEST_CASE("pando status names what a scheduler on a full disk waits for") {
  DiskRun run;
  run.FillInMidRun();
  REQUIRE(Becomes([&] { return Contains(run.train.err(), "waits for its journal"); }));
  for (int i = 0; i < 2; ++i) {
    Process status(run.household.path(), "status", {"status", run.run_dir});
    status.Await();
    CHECK_MESSAGE(status.exit_code() == 0, status.err());
    CHECK(Contains(status.out(), "waits: for its journal: "));
  }
  run.End();
}

TEST_CASE("a scheduler that is killed while the disk is full comes back") {
  DiskRun run;
  run.FillInMidRun();
  const pid_t before = ChildrenByRole(run.train.pid())["scheduler"].at(0);
  REQUIRE(kill(before, SIGKILL) == 0);
  REQUIRE(Becomes([&] {
    const auto schedulers = ChildrenByRole(run.train.pid())["scheduler"];
    return !schedulers.empty() && schedulers[0] != before;
  }));
  run.End();
}

}  // namespace
}  // namespace pando
