// Findings reach the report, however the process that has them ends.
#include "tests/ptx/findings.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

namespace pando::ptx {
namespace {

struct Ended {
  int status = 0;
  std::string errors;
};

// Runs f in a process whose errors come back.
template <class F>
Ended RunInChild(F f) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::cout.flush();  // not twice
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGABRT, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    f();
    std::exit(0);
  }
  close(ends[1]);
  Ended ended;
  char buffer[512];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;)
    ended.errors.append(buffer, static_cast<size_t>(size));
  close(ends[0]);
  REQUIRE(waitpid(child, &ended.status, 0) == child);
  return ended;
}

void AddFinding() { TheFindings().Add("a race", "_Z3sumv", "sum.cu:7", "block 0"); }

constexpr const char* kReport = "PTX finding: a race\n  at sum.cu:7\n  in sum()\n  block 0\n";

TEST_CASE("a process with findings fails at its end") {
  const Ended ended = RunInChild([] {
    AddFinding();
    AddFinding();
  });
  CHECK(ended.errors == kReport + std::string("PTX: 2 findings\n"));
  CHECK(WIFEXITED(ended.status));
  CHECK(WEXITSTATUS(ended.status) == kFoundExit);
}

TEST_CASE("a process without findings does not fail") {
  const Ended ended = RunInChild([] { TheFindings(); });
  CHECK(ended.errors.empty());
  CHECK(ended.status == 0);
}

TEST_CASE("a process that aborts keeps its findings") {
  const Ended ended = RunInChild([] {
    AddFinding();
    std::abort();
  });
  CHECK(ended.errors == kReport);
  CHECK(WTERMSIG(ended.status) == SIGABRT);
}

TEST_CASE("a process fails if a child aborts that had findings") {
  const Ended ended = RunInChild([] {
    TheFindings();
    if (const pid_t child = fork(); child != 0) {
      waitpid(child, nullptr, 0);
      return;
    }
    AddFinding();
    std::abort();
  });
  CHECK(ended.errors == kReport + std::string("PTX: 1 findings\n"));
  CHECK(WEXITSTATUS(ended.status) == kFoundExit);
}

}  // namespace
}  // namespace pando::ptx
