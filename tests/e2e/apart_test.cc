// Machines that share no folder (P45): each host has its own disk and network, and what servers
// store and read travels to the scheduler's. Hosts are lost for good with their disks; the weights
// are the serial run's. Skipped, loudly, where this machine allows no network namespaces.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <random>

#include "common/timeline/timeline_file.h"
#include "tests/e2e/hosts/apart_run.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// Without load, the faults take some 350 steps.
constexpr uint64_t kApartSteps = 800;
constexpr uint64_t kCalmSteps = 60;
constexpr size_t kStepsBetween = 50;

Args ApartJob(uint64_t steps, uint32_t servers, uint32_t workers) {
  return LongJob(steps, {"--servers", std::to_string(servers), "--workers", std::to_string(workers),
                         "--replicas", "2", "--snapshot-every", "25"});
}

void AwaitMoreSteps(ApartRun& run, size_t count = kStepsBetween) {
  run.AwaitSteps(RowCountIn(run.run_dir()) + count);
}

TEST_CASE("hosts with keys and no shared folder are lost for good, all servers' at once too") {
  ApartRun run;
  run.Begin(ApartJob(kApartSteps, 2, 2));
  for (const Args& command : {kServerNode, kServerNode, kWorkerNode, kWorkerNode}) run.Add(command);
  run.AwaitSteps(kStepsBetween);
  run.CheckApart();

  run.Lose(0);
  run.Replace(0);
  run.AwaitEvents("registered", 5);
  AwaitMoreSteps(run);

  run.KillScheduler();
  run.StartSchedulerAgain();
  run.AwaitEvents("scheduler-restarted", 1);
  AwaitMoreSteps(run);

  const size_t rollback_count = run.EventCount("rollback");
  for (const size_t server : {0, 1}) run.Lose(server);
  for (const size_t server : {0, 1}) run.Replace(server);
  run.AwaitEvents("rollback", rollback_count + 1);
  AwaitMoreSteps(run);
  run.CheckApart();
  const Summary summary = run.CheckEnd(SerialHashFor(LongJob(kApartSteps)));
  CHECK(summary.rollbacks >= 1);
  CHECK_FALSE(Contains(run.Events(), "begins from version 0 "));
}

TEST_CASE("initial weights travel to servers, and timelines to the scheduler") {
  ApartRun run;
  const std::string earlier = run.folder() + "/earlier";
  const Said trained = RunPando(run.folder(), "earlier",
                                Args{"train", "--serial", "--run-dir", earlier} + LongJob(10));
  REQUIRE_MESSAGE(trained.exit_code == kExitCompleted, trained.err);
  const Args job = LongJob(kCalmSteps, {"--init", earlier + "/final.safetensors"});
  run.Begin(ApartJob(kCalmSteps, 2, 1) + job + Args{"--timeline", run.folder() + "/trace.json"});
  for (const Args& command : {kServerNode, kServerNode, kWorkerNode}) run.Add(command);
  run.AwaitSteps(1);
  run.CheckApart();
  run.CheckEnd(SerialHashFor(job));

  std::map<std::string, std::string> hosts;  // by process
  for (const auto& entry : fs::directory_iterator(run.run_dir() + "/timeline")) {
    const Result<TimelineFile> file = ReadTimelineFile(entry.path());
    REQUIRE_MESSAGE(file.ok(), file.status().message());
    hosts[file->process] = file->host;
  }
  CHECK(hosts.size() == 4);
  std::set<std::string> names;
  for (const auto& [process, host] : hosts) names.insert(host);
  CHECK(names.size() == 4);
  CHECK(hosts.contains("worker 0"));
  CHECK(hosts.contains("server 1"));
  const Said timeline = RunPando(run.folder(), "timeline",
                                 {"timeline", run.run_dir(), "--out", run.folder() + "/t.json"});
  CHECK_MESSAGE(timeline.exit_code == kExitCompleted, timeline.err);
}

TEST_CASE("without keys hosts are apart too: a server that is to share the folder says that") {
  ApartRun run(ApartRun::Keys::kNone);
  run.Begin(ApartJob(kCalmSteps, 1, 1) + Args{"--set", "snapshot.store=folder"});
  run.Add({"server"});
  Process& server = *run.machines()[0].process;
  server.Await();
  CHECK(server.exit_code() == kExitUsage);
  CHECK_MESSAGE(Contains(server.err(), "share the folder at this path"), server.err());
}

#ifdef PANDO_HAS_GLOO
TEST_CASE("workers of a group find each other through the scheduler") {
  ApartRun run(ApartRun::Keys::kNone);
  run.Begin(LongJob(kCalmSteps, {"--strategy", "allreduce", "--workers", "2"}));
  for (int i = 0; i < 2; ++i) run.Add({"worker"});
  run.AwaitSteps(1);
  run.CheckApart();
  run.CheckEnd(SerialHashFor(LongJob(kCalmSteps)));
}
#endif

// ---- random faults ------------------------------------------------------------------------------

enum class ApartFault { kKillProcess, kLoseHost, kPullCable, kDrain, kKillScheduler };
constexpr uint64_t kApartFaultKinds = 5;

struct DrawnFault {
  ApartFault kind;
  size_t machine = 0;  // the count of machines: the scheduler's host
  std::chrono::milliseconds duration{0};
  size_t steps_before = 0;  // since the fault before it; 0: that one may not be recovered from yet
};

// Each machine's first host is lost, the scheduler is killed, and more; in a random order.
std::vector<DrawnFault> DrawFaults(uint64_t seed, size_t count, size_t machine_count) {
  std::mt19937_64 engine(seed);  // the standard fixes what it draws
  const auto below = [&](uint64_t bound) { return engine() % bound; };
  std::vector<DrawnFault> faults;
  for (size_t i = 0; i < machine_count; ++i) faults.push_back({ApartFault::kLoseHost, i});
  faults.push_back({ApartFault::kKillScheduler});
  while (faults.size() < count) {
    DrawnFault fault{static_cast<ApartFault>(below(kApartFaultKinds)), below(machine_count)};
    if (fault.kind == ApartFault::kPullCable) {
      fault.machine = below(machine_count + 1);
      fault.duration = std::chrono::milliseconds(300 + below(2500));
    }
    faults.push_back(fault);
  }
  for (size_t i = faults.size(); i > 1; --i) std::swap(faults[i - 1], faults[below(i)]);
  for (DrawnFault& fault : faults) fault.steps_before = below(4) == 0 ? 0 : 5 + below(35);
  return faults;
}

// FaultRound injects faults one after another, and names those before a gap.
class FaultRound {
 public:
  explicit FaultRound(ApartRun& run) : run_(run) {}

  void Inject(const DrawnFault& fault) {
    if (fault.steps_before > 0) AwaitMoreSteps(run_, fault.steps_before);
    REQUIRE_MESSAGE(run_.scheduler().is_running(), "the run ended before its faults did");
    injected_.push_back({RowCountIn(run_.run_dir()), Name(fault)});
    switch (fault.kind) {
      case ApartFault::kKillProcess:
        return KillProcess(run_.machines()[fault.machine]);
      case ApartFault::kLoseHost:
        run_.Lose(fault.machine);
        return run_.Replace(fault.machine);
      case ApartFault::kPullCable:
        return PullCable(fault);
      case ApartFault::kDrain:
        return Drain(fault.machine);
      case ApartFault::kKillScheduler:
        run_.KillScheduler();
        return run_.StartSchedulerAgain();
    }
  }

  // The faults up to ten rows before the gap that follows the step; without any, the last one.
  std::string FaultsAt(size_t step) const {
    constexpr size_t kRowsLate = 10;  // a row reaches the file some 20 ms after its step
    std::string names, last;
    for (const auto& [at, name] : injected_) {
      if (at > step) break;
      last = name;
      if (at + kRowsLate >= step) names += (names.empty() ? "" : ", then ") + name;
    }
    return names.empty() ? "after " + last : names;
  }

 private:
  struct Injected {
    size_t step;  // rows before it
    std::string name;
  };

  std::string Name(const DrawnFault& fault) const {
    const size_t machine_count = run_.machines().size();
    const std::string target = fault.machine == machine_count ? "the scheduler's host"
                               : fault.machine < machine_count / 2
                                   ? "server machine " + std::to_string(fault.machine)
                                   : "worker machine " + std::to_string(fault.machine);
    switch (fault.kind) {
      case ApartFault::kKillProcess:
        return "process killed on " + target;
      case ApartFault::kLoseHost:
        return "host lost: " + target;
      case ApartFault::kPullCable:
        return "cable pulled for " + std::to_string(fault.duration.count()) + " ms: " + target;
      case ApartFault::kDrain:
        return "drained: " + target;
      case ApartFault::kKillScheduler:
        return "scheduler killed";
    }
    return "";
  }

  // Its node starts it again.
  void KillProcess(const Machine& machine) {
    const auto victims = [&] {
      const bool is_server = machine.command == kServerNode;
      return ChildrenByRole(machine.process->pid())[is_server ? "server" : "worker"];
    };
    run_.Await([&] { return !victims().empty(); }, "a process to kill");
    for (const pid_t victim : victims()) kill(victim, SIGKILL);
  }

  void PullCable(const DrawnFault& fault) {
    const bool is_scheduler = fault.machine == run_.machines().size();
    const HostId host = is_scheduler ? run_.scheduler_host() : run_.machines()[fault.machine].host;
    TheNetwork().PullCable(host);
    const auto since = TestClock::now();
    CHECK(Becomes([&] { return TestClock::now() - since >= fault.duration; }));
    TheNetwork().PlugIn(host);
  }

  void Drain(size_t machine) {
    Process& node = *run_.machines()[machine].process;
    // Its host may be new: the signal would end a node that has only just started.
    const auto has_joined = [&] {
      return Contains(node.err(), "serving on ") || Contains(node.err(), "computes on ");
    };
    run_.Await(has_joined, "a node to drain");
    node.Signal(SIGTERM);
    node.Await();
    CHECK_MESSAGE(node.exit_code() == kExitCompleted, node.err());
    run_.StartProcess(machine);
  }

  ApartRun& run_;
  std::vector<Injected> injected_;
};

struct StepGap {
  double seconds = 0;
  size_t step = 0;        // before the gap
  size_t late_steps = 0;  // whose rows came together after it
};

std::vector<double> ElapsedIn(const std::string& run_dir) {
  constexpr int kElapsedColumn = 7;
  std::vector<double> elapsed;
  for (const std::string& row : RowsIn(run_dir)) {
    size_t at = 0;
    for (int column = 0; column < kElapsedColumn; ++column) at = row.find(',', at) + 1;
    elapsed.push_back(std::stod(row.substr(at)));
  }
  return elapsed;
}

// The times between the `elapsed_seconds` of rows of metrics.csv, longest first: when the scheduler
// saw steps committed. A rollback's repeated steps are in one gap. While no scheduler runs, steps
// go on, and their rows come together.
std::vector<StepGap> GapsIn(const std::vector<double>& elapsed) {
  constexpr double kTogetherSeconds = 0.05;
  std::vector<StepGap> gaps;
  for (size_t i = 1; i < elapsed.size(); ++i) {
    const auto end = std::upper_bound(elapsed.begin() + static_cast<ptrdiff_t>(i), elapsed.end(),
                                      elapsed[i] + kTogetherSeconds);
    const size_t late = static_cast<size_t>(end - elapsed.begin()) - i;
    gaps.push_back({elapsed[i] - elapsed[i - 1], i, late});
  }
  std::ranges::sort(gaps, std::greater(), &StepGap::seconds);
  return gaps;
}

uint64_t NumberFrom(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// PANDO_APART_SEED and PANDO_APART_FAULTS choose other faults.
TEST_CASE("random faults on hosts that share no folder do not change the weights" *
          doctest::test_suite("thorough 1")) {
  constexpr uint64_t kSteps = 5000;
  const uint64_t seed = NumberFrom("PANDO_APART_SEED", 1);
  ApartRun run;
  run.Begin(ApartJob(kSteps, 3, 3));
  for (int i = 0; i < 3; ++i) run.Add(kServerNode);
  for (int i = 0; i < 3; ++i) run.Add(kWorkerNode);
  run.AwaitSteps(kStepsBetween);
  run.CheckApart();
  FaultRound round(run);
  const std::vector<DrawnFault> faults =
      DrawFaults(seed, NumberFrom("PANDO_APART_FAULTS", 30), run.machines().size());
  for (const DrawnFault& fault : faults) round.Inject(fault);
  AwaitMoreSteps(run);
  run.CheckApart();
  const size_t faulty_steps = RowCountIn(run.run_dir());
  const Summary summary = run.CheckEnd(SerialHashFor(LongJob(kSteps)));
  MESSAGE("seed " << seed << ": " << faults.size() << " faults in " << faulty_steps << " steps, "
                  << summary.rollbacks << " rollbacks, " << summary.wall_seconds
                  << " s, weights hash " << summary.weights_hash);
  const std::vector<StepGap> gaps = GapsIn(ElapsedIn(run.run_dir()));
  REQUIRE(gaps.size() == kSteps - 1);
  for (size_t i = 0; i < 3; ++i) {
    MESSAGE("gap of " << gaps[i].seconds << " s after step " << gaps[i].step << ", then "
                      << gaps[i].late_steps << " steps at once: " << round.FaultsAt(gaps[i].step));
  }
}

}  // namespace
}  // namespace pando
