#include "node/supervisor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>

#include "common/exit_codes.h"
#include "job/job_file.h"
#include "node/scheduler_link.h"
#include "tests/deadline.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// Children are shells that do as `script` says.
struct Household {
  explicit Household(uint32_t restarts_max = kRestartsMaxDefault)
      : supervisor({.restarts_max = restarts_max,
                    .on_fault = [this](FaultNote note) { notes.push_back(std::move(note)); },
                    .on_exit =
                        [this](const ProcessExit& exit) {
                          exits.push_back(exit);
                          return Follow(role, exit.kind(), phase);
                        }}) {}
  ProcessSpec ShellSpec(const std::string& name, const std::string& script) {
    return {.name = name,
            .title = name,
            .args = {"-c", script},
            .log_path = LogPath(name),
            .program = "/bin/sh"};
  }
  void Start(const std::string& name, const std::string& script) {
    REQUIRE(supervisor.Start(ShellSpec(name, script), Role::kWorker).ok());
  }
  template <class Condition>
  void Await(Condition condition) {
    const auto deadline = Clock::now() + kEventDeadline;
    while (!condition() && Clock::now() < deadline) {
      supervisor.Wait(std::min(deadline, Clock::now() + 5ms));
    }
    REQUIRE(condition());
  }
  std::string LogPath(const std::string& name) { return temp.path() + "/" + name + ".log"; }
  std::string ReadLog(const std::string& name) {
    Result<std::string> text = ReadTextFile(LogPath(name));
    return text.ok() ? *text : "";
  }
  pid_t ReadPid(const std::string& name) { return std::atoi(ReadLog(name).c_str()); }

  TempFolder temp;
  ExitRole role = ExitRole::kMember;
  FleetPhase phase = FleetPhase::kBegun;
  std::vector<ProcessExit> exits;
  std::vector<FaultNote> notes;
  Supervisor supervisor;
};

TEST_CASE("pauses double up to five seconds, and a life of ten seconds resets them") {
  RestartPolicy policy(10);
  const RestartPolicy::TimePoint start{};
  policy.OnStart(start);
  std::vector<std::chrono::milliseconds> pauses;
  for (int i = 0; i < 7; ++i) {
    pauses.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(
        *policy.OnDeath(start, ExitKind::kFailed) - start));
  }
  CHECK(pauses ==
        std::vector<std::chrono::milliseconds>{100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 5000ms});
  CHECK(*policy.OnDeath(start + 10s, ExitKind::kUnreached) == start + 15s);
  CHECK(*policy.OnDeath(start + 10s, ExitKind::kFailed) == start + 10s + 100ms);
  policy.OnStart(start + 11s);
  CHECK(*policy.OnDeath(start + 12s, ExitKind::kFailed) == start + 12s + 200ms);
  CHECK_FALSE(policy.OnDeath(start + 70s, ExitKind::kUnreached).has_value());  // the eleventh
  CHECK(policy.OnDeath(start + 71s, ExitKind::kFailed).has_value());
}

TEST_CASE("a minute of waiting for a scheduler is no good life") {
  RestartPolicy policy(2);
  RestartPolicy::TimePoint now{};
  for (int i = 0; i < 2; ++i) {
    policy.OnStart(now);
    now += 61s;
    CHECK(policy.OnDeath(now, ExitKind::kUnreached).has_value());
  }
  policy.OnStart(now);
  CHECK_FALSE(policy.OnDeath(now + 61s, ExitKind::kUnreached).has_value());
}

TEST_CASE("after the last restart there is none, and what does not count is not counted") {
  RestartPolicy policy(2);
  const RestartPolicy::TimePoint start{};
  policy.OnStart(start);
  for (int i = 0; i < 5; ++i) CHECK(*policy.OnDeath(start, ExitKind::kInjected) == start + 100ms);
  CHECK(policy.OnDeath(start, ExitKind::kFailed).has_value());
  CHECK(policy.OnDeath(start, ExitKind::kFailed).has_value());
  CHECK_FALSE(policy.OnDeath(start, ExitKind::kFailed).has_value());
  CHECK_FALSE(RestartPolicy(0).OnDeath(start, ExitKind::kFailed).has_value());
}

TEST_CASE("a killed process is reported at once and started again with current arguments") {
  Household household;
  household.Start("worker-0", "echo $$; exec sleep 600");
  household.Await([&] { return household.ReadPid("worker-0") != 0; });
  household.supervisor.SetSpec(household.ShellSpec("worker-0", "echo again; exec sleep 600"));
  const pid_t pid = household.ReadPid("worker-0");
  kill(pid, SIGKILL);
  household.Await([&] { return household.ReadLog("worker-0").ends_with("again\n"); });
  REQUIRE(household.notes.size() == 1);
  const FaultNote& note = household.notes[0];
  CHECK(note.action == "exit");
  CHECK(note.target == "worker-0");
  CHECK(note.process_id == static_cast<uint32_t>(pid));
  CHECK(note.text == "signal 9 (SIGKILL)");
  CHECK(note.injected_us == 0);
  CHECK(note.exited_us != 0);
  CHECK_FALSE(household.supervisor.root_cause().has_value());
}

TEST_CASE("a process that has done its work is not started again") {
  Household household;
  household.Start("worker-0", "exit 0");
  household.Await([&] { return household.exits.size() == 1; });
  CHECK(household.supervisor.kept_count() == 0);
  CHECK(household.notes.empty());
  CHECK_FALSE(household.supervisor.root_cause().has_value());
}

TEST_CASE("an end that is as good as a clean one is no root cause and is not told") {
  Household household;
  household.role = ExitRole::kNodeMember;
  household.phase = FleetPhase::kLeft;
  household.Start("worker-0", "exit 3");
  household.Await([&] { return household.supervisor.kept_count() == 0; });
  CHECK_FALSE(household.supervisor.root_cause().has_value());
  CHECK(household.notes.empty());
}

TEST_CASE("a process that keeps dying is the root cause, and so is one that may not start again") {
  Household household(1);
  household.Start("worker-0", "exit 3");
  household.Await([&] { return household.supervisor.root_cause().has_value(); });
  CHECK(household.exits.size() == 2);
  CHECK(household.supervisor.root_cause()->exit_code == 3);
  const std::string text = ExitText(*household.supervisor.root_cause());
  CHECK(text.starts_with("exit code 3, after 1 restart within "));
  CHECK(text.find("worker-0") != std::string::npos);
  CHECK(text.ends_with("or raise --max-restarts"));
  CHECK(household.supervisor.kept_count() == 0);
  Household strict;
  strict.Start("worker-0", "exit 2");
  strict.Await([&] { return strict.supervisor.root_cause().has_value(); });
  CHECK(strict.exits.size() == 1);
  CHECK(ExitText(*strict.supervisor.root_cause()) == "exit code 2");
}

TEST_CASE("an injected kill is reported with its time, and may happen more often than restarts") {
  Household household(0);
  household.Start("worker-0", "echo $$; exec sleep 600");
  for (size_t life = 1; life <= 2; ++life) {
    household.Await([&] { return household.supervisor.Running().contains("worker-0"); });
    household.supervisor.Inject({.action = ChaosAction::kKill, .process = "worker-0"});
    household.Await([&] { return household.notes.size() == life; });
    const FaultNote& note = household.notes.back();
    CHECK(note.action == "kill");
    CHECK(note.injected_us != 0);
    CHECK(note.exited_us >= note.injected_us);
  }
}

// "T" while it is stopped: field 3 of /proc/PID/stat.
char ReadState(pid_t pid) {
  Result<std::string> text = ReadTextFile("/proc/" + std::to_string(pid) + "/stat");
  return text.ok() ? text->at(text->rfind(')') + 2) : 'X';
}

TEST_CASE("a process that is stopped goes on after the time asked for") {
  Household household;
  household.Start("worker-0", "echo $$; exec sleep 600");
  household.Await([&] { return household.ReadPid("worker-0") != 0; });
  const pid_t pid = household.ReadPid("worker-0");
  household.supervisor.Inject(
      {.action = ChaosAction::kStop, .process = "worker-0", .duration = 300ms});
  household.Await([&] { return ReadState(pid) == 'T'; });
  household.Await([&] { return ReadState(pid) != 'T'; });
  REQUIRE(household.notes.size() == 1);
  CHECK(household.notes[0].action == "stop");
  CHECK(household.notes[0].exited_us == 0);
}

TEST_CASE("once retired, nothing is started again and what is stopped goes on") {
  Household household;
  household.Start("worker-0", "echo $$; exec sleep 600");
  household.Start("worker-1", "exit 3");
  household.Await([&] { return household.ReadPid("worker-0") != 0 && !household.exits.empty(); });
  household.supervisor.Inject(
      {.action = ChaosAction::kStop, .process = "worker-0", .duration = 60s});
  household.supervisor.Retire();
  household.supervisor.SignalAll(SIGTERM);
  household.Await([&] { return household.supervisor.running_count() == 0; });
  CHECK(household.supervisor.kept_count() == 0);
  CHECK_FALSE(household.supervisor.root_cause().has_value());
}

// Forks as python/pando_train/_preload.py does: a process whose parent has ended.
constexpr const char* kForking =
    "while [ $(dd bs=4096 count=1 2>/dev/null <&$PANDO_PRELOAD | wc -c) -gt 0 ]; do\n"
    "  echo -n $(sleep 600 >/dev/null & echo $!) >&$PANDO_PRELOAD; echo forked; done; echo over";

// A household with a preloaded process, and a worker that is to be forked from it. If it is started
// as any other, its log has "started".
struct PreloadedHousehold : Household {
  explicit PreloadedHousehold(const std::string& script) {
    ProcessSpec preloaded = ShellSpec("preloaded", script);
    preloaded.program = "/bin/bash";
    REQUIRE(supervisor.StartPreloaded(preloaded).ok());
    ProcessSpec worker = ShellSpec("worker-0", "echo started; exec sleep 600");
    worker.is_forked = true;
    REQUIRE(supervisor.Start(worker, Role::kWorker).ok());
  }
  bool HasStarted() { return ReadLog("worker-0") == "started\n"; }
};

TEST_CASE("a worker is forked, and forked again when it was killed") {
  PreloadedHousehold household(kForking);
  Supervisor& supervisor = household.supervisor;
  household.Await([&] { return supervisor.Running().contains("worker-0"); });
  supervisor.Signal("worker-0", SIGKILL);
  household.Await([&] { return household.exits.size() == 1; });
  CHECK(household.exits[0].signal == SIGKILL);
  CHECK(household.notes.size() == 1);
  household.Await([&] { return household.ReadLog("preloaded") == "forked\nforked\n"; });
  household.Await([&] { return supervisor.Running().contains("worker-0"); });
  CHECK_FALSE(household.HasStarted());
  supervisor.Retire();
  household.Await([&] { return supervisor.running_count() == 1; });
  CHECK(household.ReadLog("preloaded") == "forked\nforked\nover\n");
  CHECK(household.exits.size() == 1);
}

TEST_CASE("where a preloaded process cannot fork, or ends, workers are started") {
  for (const char* script : {"echo -n no threads >&$PANDO_PRELOAD", "exit 3", "kill -9 $$"}) {
    CAPTURE(script);
    PreloadedHousehold household(script);
    household.Await([&] { return household.HasStarted(); });
    CHECK(household.exits.empty());
    CHECK(household.supervisor.kept_count() == 1);
    CHECK_FALSE(household.supervisor.root_cause().has_value());
  }
}

TEST_CASE("a preloaded process that was killed comes back") {
  PreloadedHousehold household("echo $$; " + std::string(kForking));
  Supervisor& supervisor = household.supervisor;
  household.Await([&] { return supervisor.Running().contains("worker-0"); });
  household.Await([&] { return household.ReadLog("preloaded").ends_with("forked\n"); });
  kill(household.ReadPid("preloaded"), SIGKILL);
  const auto lives = [&] { return std::ranges::count(household.ReadLog("preloaded"), '\n'); };
  household.Await([&] { return lives() == 3; });  // its number, "forked", its number
  supervisor.Signal("worker-0", SIGKILL);
  household.Await([&] { return household.ReadLog("preloaded").ends_with("forked\n"); });
  household.Await([&] { return supervisor.Running().contains("worker-0"); });
  CHECK_FALSE(household.HasStarted());
}

TEST_CASE("two children that the memory limit ends at once are both its own") {
  OomKills kills(5);
  CHECK_FALSE(kills.Take(5));
  CHECK(kills.Take(7));
  CHECK(kills.Take(7));
  CHECK_FALSE(kills.Take(7));
}

TEST_CASE("a death that came four times without a step in between would come again") {
  SchedulerLink link("tcp://127.0.0.1:1", kNever);  // not started: no step is ever known
  RepeatedDeaths deaths;
  ProcessExit exit{.spec = {.name = "worker-0"}, .exit_code = kExitFailed};
  SUBCASE("by an exit code") {}
  SUBCASE("by the memory limit") {
    exit.exit_code = 0;
    exit.signal = SIGKILL;
    exit.is_out_of_memory = true;
    CHECK(ExitText(exit).find("by the memory limit") != std::string::npos);
  }
  for (int i = 0; i < 3; ++i) {
    deaths.OnExit(exit, link);
    CHECK_FALSE(deaths.AreHopeless("worker-0"));
  }
  deaths.OnExit(exit, link);
  CHECK(deaths.AreHopeless("worker-0"));
  CHECK_FALSE(deaths.AreHopeless("worker-1"));
}

TEST_CASE("deaths that a person brings, other codes and a long wait for the scheduler may pass") {
  SchedulerLink link("tcp://127.0.0.1:1", kNever);
  RepeatedDeaths deaths;
  int code = 0, code_increment = 0, signal = 0;
  SUBCASE("kill -9") { signal = SIGKILL; }
  SUBCASE("an absent scheduler") { code = kExitUnreached; }
  SUBCASE("another code each time") { code = 10, code_increment = 1; }
  for (int i = 0; i < 10; ++i, code += code_increment)
    deaths.OnExit({.spec = {.name = "worker-0"}, .exit_code = code, .signal = signal}, link);
  CHECK_FALSE(deaths.AreHopeless("worker-0"));
}

}  // namespace
}  // namespace pando
