// What recovery makes of logs, events and samples.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "bench/recovery/recovery.h"
#include "tests/temp_folder.h"

namespace pando::bench {
namespace {

Commits CommitsOf(const std::vector<std::pair<uint64_t, uint64_t>>& version_and_micros) {
  Commits commits;
  for (const auto& [version, micros] : version_and_micros) {
    commits.Add("00:00:00.000 debug [worker 0] version " + std::to_string(version) +
                " committed, at " + std::to_string(micros) + " us");
  }
  return commits;
}

TEST_CASE("commits are read from a log; other lines and versions made again do not count") {
  Commits commits = CommitsOf({{1, 1000}, {2, 2000}, {4, 4000}, {3, 9000}, {5, 10000}});
  commits.Add("00:00:00.000 info [worker 0] 22 shards");
  commits.Add("version x committed, at 3 us");
  commits.Add("");
  REQUIRE(commits.all().size() == 4);
  CHECK(commits.newest() == 5);
  CHECK(commits.Reached(2) == SteadyMicros(2000));
  CHECK(commits.Reached(3) == SteadyMicros(4000));  // told of with the next one
  CHECK(!commits.Reached(6));
  CHECK(Commits().newest() == 0);
}

TEST_CASE("the longest wait begins with the fault, or with a commit after it") {
  const Commits commits = CommitsOf({{1, 1000}, {2, 2000}, {3, 2500}, {4, 5000}, {5, 5100}});
  CHECK(commits.LongestWait(SteadyMicros(2100)) == SteadyMicros(2500));  // 2500 to 5000
  CHECK(commits.LongestWait(SteadyMicros(3000)) == SteadyMicros(2000));  // the fault to 5000
  CHECK(commits.LongestWait(SteadyMicros(5000)) == SteadyMicros(100));
  CHECK(!commits.LongestWait(SteadyMicros(5100)));
}

RecoveryOptions SmallOptions() {
  RecoveryOptions options;
  options.workload = {.model = "mnist-cnn", .data_set = "mnist", .worker_batch = 16};
  options.warm_up_steps = 1;
  options.fault_step = 3;
  options.steps_after = 2;
  return options;
}

TEST_CASE("figures of one run: the delay against its own pace, the wait, the time to the goal") {
  // 1 ms a step until the fault at 3.2 ms; then 2 steps in 7 ms.
  const Commits commits = CommitsOf({{1, 1000}, {2, 2000}, {3, 3000}, {4, 9000}, {5, 10000}});
  Point point;
  REQUIRE(AddFigures(SmallOptions(), commits, SteadyMicros(3200), &point).ok());
  CHECK(point.MedianOf(kToGoal) == doctest::Approx(0.009));
  CHECK(point.MedianOf(kNextCommit) == doctest::Approx(5.8));
  CHECK(point.MedianOf(kLostOfOwnPace) == doctest::Approx(0.005));
  Point undisturbed;
  REQUIRE(AddFigures(SmallOptions(), commits, std::nullopt, &undisturbed).ok());
  CHECK(undisturbed.measurements.size() == 1);
  CHECK(!AddFigures(SmallOptions(), CommitsOf({{1, 1000}, {3, 3000}}), std::nullopt, &point).ok());
}

TEST_CASE("every fault of those whom a run has, of servers with servers alone; names are unique") {
  const std::vector<RecoveryPoint> points = RecoveryPoints(SmallOptions(), 2);
  REQUIRE(points.size() == (1 + FaultNames().size()) + FaultNames().size());
  for (size_t i = 0; i < points.size(); ++i) {
    CAPTURE(points[i].point.name);
    CHECK(points[i].fault.has_value() == !points[i].undisturbed.empty());
    CHECK(points[i].plan.is_verbose);
    for (size_t j = 0; j < i; ++j) CHECK(points[j].point.name != points[i].point.name);
  }
  const auto named = [&](const char* name) {
    return std::ranges::count(points, name, [](const RecoveryPoint& p) { return p.point.name; });
  };
  CHECK(named("ps, server killed") == 1);
  CHECK(named("allreduce, server killed") == 0);
  for (const char* fault : {"allreduce, worker killed", "allreduce, scheduler killed",
                            "allreduce, worker stopped", "allreduce, scheduler stopped"}) {
    CAPTURE(fault);
    CHECK(named(fault) == 1);
  }
  CHECK(points.back().undisturbed == "allreduce, undisturbed");
}

TEST_CASE("what a fault lost is taken against the same round's undisturbed run") {
  RecoveryOptions options = SmallOptions();
  options.strategies = {"ps"};
  options.faults = {"server"};
  const std::vector<RecoveryPoint> asked = RecoveryPoints(options, 8);
  REQUIRE(asked.size() == 2);
  std::vector<Point> points{asked[0].point, asked[1].point};
  for (const double s : {4.0, 5.0}) points[0].Add(kToGoal, "s", s);
  for (const double s : {4.5, 5.25}) points[1].Add(kToGoal, "s", s);
  AddLost(asked, &points);
  CHECK(points[0].Find(kLost) == nullptr);
  CHECK(points[1].SamplesOf(kLost) == std::vector<double>{0.5, 0.25});
  ResultSet set = NewResultSet("recovery", "t", {});
  set.points = points;
  AddRecoverySummaries(options, asked, &set);
  REQUIRE(set.tables.size() == 1);
  REQUIRE(set.tables[0].rows.size() == 1);
  CHECK(set.tables[0].rows[0].size() == set.tables[0].header.size());
  CHECK(set.tables[0].rows[0][0] == "ps, server killed");
  CHECK(set.tables[0].rows[0][3] == "0.375");
  CHECK(set.tables[0].rows[0][7] == "-");  // nobody said that it was noticed
  REQUIRE(set.plots.size() == 2);
  CHECK(set.plots[1].name == "recovery-lost");
  REQUIRE(set.plots[1].series.size() == 1);
  CHECK(set.plots[1].series[0].name == "ps, server killed");
  CHECK(set.plots[1].series[0].points ==
        std::vector<std::pair<double, double>>{{0, 0.5}, {1, 0.25}});
}

TEST_CASE("a run's own word on a fault: the first line that knows it, after the fault") {
  const TempFolder folder;
  const std::string path = folder.path() + "/events.jsonl";
  std::ofstream(path)
      << R"({"time":"2026-01-01T00:00:01.000Z","event":"fault","details":{"detected_ms":1,"recovered_ms":2}}
{"time":"2026-01-01T00:00:05.010Z","event":"fault","details":{"detected_ms":null,"recovered_ms":null}}
{"time":"2026-01-01T00:00:05.020Z","event":"fault","details":{"detected_ms":5020.5,"recovered_ms":null}}
{"time":"2026-01-01T00:00:05.030Z","event":"view","details":{"detected_ms":5020.5,"recovered_ms":1}}
not a line of ours
{"time":"2026-01-01T00:00:05.045Z","event":"fault","details":{"detected_ms":5020.5,"recovered_ms":5045}}
)";
  // 5 s behind the first line.
  const std::chrono::system_clock::time_point injected_at{
      std::chrono::sys_days{std::chrono::year{2026} / 1 / 1} + std::chrono::seconds(5)};
  const RunsOwnWord word = ReadFault(path, injected_at);
  CHECK(word.noticed_ms.value() == doctest::Approx(20.0));
  CHECK(word.made_up_ms.value() == doctest::Approx(45.0));
  CHECK(!ReadFault(folder.path() + "/none", injected_at).noticed_ms);
}

// A child whose command line is "pando ROLE --rank RANK"; it waits for a line that never comes.
class Child {
 public:
  Child(const TempFolder& folder, const std::string& role, const std::string& rank) {
    // A shell that runs the file named by the role.
    const std::string path = folder.path() + "/" + role;
    std::ofstream(path) << "read line\n";
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[0], STDIN_FILENO);
      REQUIRE(chdir(folder.path().c_str()) == 0);
      execl("/bin/sh", "pando", role.c_str(), "--rank", rank.c_str(), nullptr);
      _exit(127);
    }
    close(ends[0]);
    write_end_ = ends[1];
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(write_end_);
  }
  Child(const Child&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int write_end_ = -1;
};

TEST_CASE("a child is found by its role and rank") {
  const TempFolder folder;
  const Child first(folder, "worker", "0"), second(folder, "worker", "1"),
      server(folder, "server", "1");
  const auto found = [&](const char* role, uint32_t rank) {
    // Until the children have executed their program.
    for (int i = 0; i < 1000; ++i) {
      if (const auto pid = FindChild(getpid(), role, rank)) return *pid;
      usleep(1000);
    }
    return pid_t{0};
  };
  CHECK(found("worker", 1) == second.pid());
  CHECK(found("worker", 0) == first.pid());
  CHECK(found("server", 1) == server.pid());
  CHECK(!FindChild(getpid(), "server", 0));
  CHECK(!FindChild(getpid(), "scheduler", 0));
}

}  // namespace
}  // namespace pando::bench
