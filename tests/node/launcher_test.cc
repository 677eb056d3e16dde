#include "node/supervisor.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "job/job_file.h"
#include "tests/deadline.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

ProcessSpec Shell(const TempFolder& temp, const std::string& name, const std::string& script) {
  return {.name = name,
          .title = name,
          .args = {"-c", script},
          .log_path = temp.path() + "/" + name + ".log",
          .program = "/bin/sh"};
}

struct Exits {
  std::vector<ProcessExit> seen;
  ProcessGroup group{[this](const ProcessExit& exit) { seen.push_back(exit); }};
  void Await(size_t count) {
    const auto deadline = Clock::now() + kEventDeadline;
    while (seen.size() < count && Clock::now() < deadline) group.Wait(deadline);
    REQUIRE(seen.size() == count);
  }
};

TEST_CASE("exit codes and signals of children are distinguished") {
  TempFolder temp;
  Exits exits;
  REQUIRE(exits.group.Start(Shell(temp, "clean", "exit 0")).ok());
  exits.Await(1);
  REQUIRE(exits.group.Start(Shell(temp, "failing", "exit 3")).ok());
  exits.Await(2);
  REQUIRE(exits.group.Start(Shell(temp, "killed", "kill -SEGV $$")).ok());
  exits.Await(3);
  CHECK(exits.seen[0].is_clean());
  CHECK(exits.seen[1].exit_code == 3);
  CHECK(ExitText(exits.seen[1]) == "exit code 3");
  CHECK(exits.seen[2].signal == SIGSEGV);
  CHECK(ExitText(exits.seen[2]) == "signal 11 (SIGSEGV)");
  CHECK(exits.group.running_count() == 0);
}

TEST_CASE("a child that cannot be watched for want of file descriptors is an error") {
  TempFolder temp;
  Exits exits;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int lowest_free = dup(STDIN_FILENO);
  REQUIRE(lowest_free >= 0);
  close(lowest_free);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(lowest_free) + 2;  // the log and /dev/null
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  const Status status = exits.group.Start(Shell(temp, "unseen", "exec sleep 600"));
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE_FALSE(status.ok());
  CHECK(status.message().find("cannot watch unseen") != std::string::npos);
  CHECK(status.message().find("ulimit -n") != std::string::npos);
  CHECK(exits.group.running_count() == 0);
  CHECK(waitpid(-1, nullptr, WNOHANG) < 0);  // no child is left
}

TEST_CASE("a death among many is noticed, the others live on") {
  TempFolder temp;
  Exits exits;
  for (const char* name : {"a", "b", "c"}) {
    REQUIRE(exits.group.Start(Shell(temp, name, "exec sleep 600")).ok());
  }
  exits.group.Signal("b", SIGKILL);
  exits.Await(1);
  CHECK(exits.seen[0].spec.name == "b");
  CHECK(exits.seen[0].signal == SIGKILL);
  CHECK(exits.group.IsRunning("a"));
  CHECK_FALSE(exits.group.IsRunning("b"));
  exits.group.KillAll();
  CHECK(exits.seen.size() == 3);
}

TEST_CASE("a child may be started again from the callback") {
  TempFolder temp;
  int starts = 0;
  ProcessGroup* group_pointer = nullptr;
  ProcessGroup group([&](const ProcessExit& exit) {
    if (++starts < 3) CHECK(group_pointer->Start(exit.spec).ok());
  });
  group_pointer = &group;
  REQUIRE(group.Start(Shell(temp, "phoenix", "echo life")).ok());
  const auto deadline = Clock::now() + kEventDeadline;
  while (group.running_count() > 0 && Clock::now() < deadline) group.Wait(deadline);
  CHECK(starts == 3);
  CHECK(*ReadTextFile(temp.path() + "/phoenix.log") == "life\nlife\nlife\n");
}

TEST_CASE("waiting ends at the deadline, or when another descriptor speaks") {
  ProcessGroup group([](const ProcessExit&) {});
  CHECK_FALSE(group.Wait(Clock::now() + 1ms));
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  REQUIRE(write(write_end.get(), "x", 1) == 1);
  const std::array fds{read_end.get()};
  CHECK(group.Wait(Clock::now() + kEventDeadline, fds));
}

TEST_CASE("a child does not inherit blocked signals or the terminal's group") {
  TempFolder temp;
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  Exits exits;
  REQUIRE(exits.group.Start(Shell(temp, "sleeper", "exec sleep 600")).ok());
  sigprocmask(SIG_SETMASK, &before, nullptr);
  exits.group.Signal("sleeper", SIGTERM);
  exits.Await(1);
  CHECK(exits.seen[0].signal == SIGTERM);

  REQUIRE(exits.group.Start(Shell(temp, "grouped", "exec sleep 600")).ok());
  const pid_t pid = *exits.group.Pid("grouped");
  exits.group.Signal("grouped", SIGKILL);
  exits.Await(2);
  CHECK(pid != getpgrp());
}

TEST_CASE("a program that cannot be started exits as shells say it") {
  TempFolder temp;
  Exits exits;
  ProcessSpec spec = Shell(temp, "none", "");
  spec.program = "/no/such/program";
  REQUIRE(exits.group.Start(spec).ok());
  exits.Await(1);
  CHECK(exits.seen[0].exit_code == 127);
  spec.log_path = "/no/such/folder/x.log";
  CHECK_FALSE(exits.group.Start(spec).ok());
}

TEST_CASE("the root cause names process, end, time and the tail of the log") {
  TempFolder temp;
  Exits exits;
  ProcessSpec spec = Shell(
      temp, "worker-1", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do echo line $i; done; exit 4");
  spec.title = "worker 1";
  REQUIRE(exits.group.Start(spec).ok());
  exits.Await(1);
  const std::string text = RootCauseText(exits.seen[0]);
  CAPTURE(text);
  for (const std::string& part :
       {std::string("Root Cause"), "worker 1 (pid " + std::to_string(exits.seen[0].pid) + ")",
        std::string("exit code 4"), spec.log_path, std::string("| line 3\n"),
        std::string("| line 14\n")}) {
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find("| line 2\n") == std::string::npos);
}

TEST_CASE("no log has no tail") {
  TempFolder temp;
  CHECK(LogTail(temp.path() + "/none.log", 5).empty());
  std::ofstream(temp.path() + "/one.log") << "only";
  CHECK(LogTail(temp.path() + "/one.log", 5) == std::vector<std::string>{"only"});
}

// Whether the process is gone within the deadline.
bool IsGoneSoon(pid_t pid) {
  const UniqueFd pid_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pid_fd.is_open()) return true;
  pollfd polled{pid_fd.get(), POLLIN, 0};
  return poll(&polled, 1, static_cast<int>(std::chrono::milliseconds(kEventDeadline).count())) == 1;
}

TEST_CASE("children die with a launcher that is killed") {
  const char* helper = std::getenv("PANDO_LAUNCHER_HELPER");
  REQUIRE(helper != nullptr);
  TempFolder temp;
  const std::string log = temp.path() + "/child.log";
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl(helper, helper, log.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  FILE* output = fdopen(ends[0], "r");
  int child = 0;
  REQUIRE(fscanf(output, "%d", &child) == 1);
  fclose(output);
  REQUIRE(kill(child, 0) == 0);
  kill(launcher, SIGKILL);
  CHECK(waitpid(launcher, nullptr, 0) == launcher);
  CHECK(IsGoneSoon(child));
}

}  // namespace
}  // namespace pando
