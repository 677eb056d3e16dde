// The subcommands of pando-bench, declared and parsed as those of pando (cli/commands.h): Add...
// returns what runs it, whose result is the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "bench/harness/interleave.h"
#include "bench/harness/result.h"
#include "common/status.h"

namespace pando::bench {

std::function<int()> AddPushPull(CLI::App& app);
std::function<int()> AddStep(CLI::App& app);
std::function<int()> AddRecovery(CLI::App& app);
std::function<int()> AddScaling(CLI::App& app);
std::function<int()> AddKernels(CLI::App& app);
std::function<int()> AddReport(CLI::App& app);
std::function<int()> AddPeer(CLI::App& app);  // hidden: the processes that others start

// ---- what the benchmarks share ------------------------------------------------------------------

inline constexpr const char* kDefaultOut = "bench-results";
void AddOutOption(CLI::App& command, std::string* folder);

// A line of progress on standard error, where that is a terminal.
OnProgress ProgressLine();

// Writes the files, prints the tables; or says what went wrong. Returns the exit code.
int Finish(const Result<ResultSet>& set, const std::string& folder);
int Report(const Status& status);  // REQUIRES: !status.ok()

}  // namespace pando::bench
