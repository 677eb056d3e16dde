// Pando runs the program itself, as a user calls it, and keeps what it says.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/exit_codes.h"
#include "job/job_file.h"
#include "node/supervisor.h"
#include "tests/contains.h"
#include "tests/deadline.h"
#include "tests/temp_folder.h"

namespace pando {

struct Outcome {
  int exit_code = -1;
  std::string output;  // standard output and error
};

inline Outcome Pando(const std::vector<std::string>& args) {
  const char* program = std::getenv("PANDO_PROGRAM");
  REQUIRE(program != nullptr);
  TempFolder temp;
  const std::string log = temp.path() + "/output";
  Outcome outcome;
  ProcessGroup group([&](const ProcessExit& exit) { outcome.exit_code = exit.exit_code; });
  REQUIRE(group
              .Start({.name = "pando",
                      .title = "pando",
                      .args = args,
                      .log_path = log,
                      .program = program})
              .ok());
  const auto deadline = std::chrono::steady_clock::now() + kEventDeadline;
  while (group.running_count() > 0 && std::chrono::steady_clock::now() < deadline)
    group.Wait(deadline);
  REQUIRE(group.running_count() == 0);
  outcome.output = *ReadTextFile(log);
  return outcome;
}

// The exit code of bad usage, and these words. Earlier output may precede the error.
inline void CheckUsageError(const std::vector<std::string>& args, const std::string& expected,
                            int earlier_lines_max = 0) {
  const Outcome outcome = Pando(args);
  CAPTURE(outcome.output);
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(Contains(outcome.output, expected));
  CHECK(std::ranges::count(outcome.output, '\n') <= earlier_lines_max + 1);
}

}  // namespace pando
