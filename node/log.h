// SetUpLog sets up spdlog's default logger, to standard error, with time and the process's role.
#pragma once

#include <string>

#include "common/result.h"
#include "kernels/opened_gpu.h"

namespace pando {

struct LogOptions {
  std::string process;      // "scheduler", "worker 1": names the process in each line
  bool is_verbose = false;  // -v: debug lines as well
  std::string file;         // also written there, if not empty: a log that outlives the terminal
};

// Call it first, and again when the process learns its rank. Lines are flushed one by one.
void SetUpLog(const LogOptions& options);

// For callbacks that get warnings.
void LogWarning(const std::string& text);

// Logs how a worker's GPU computes a convolution. A fallback is a warning.
void LogEngine(const EngineNote& note);

// Concludes a process: logs the failure, if it is one, and returns the exit code.
int ExitWith(const Result<int>& exit_code);

}  // namespace pando
