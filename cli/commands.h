// The subcommands of pando, one file each: Add... declares a subcommand's options and returns what
// runs it once they are parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "cli/job_file.h"

namespace pando {

// Returns an exit code.
using Command = std::function<int()>;

Command AddTrainCommand(CLI::App& app);
Command AddSchedulerCommand(CLI::App& app);
Command AddServerCommand(CLI::App& app);
Command AddWorkerCommand(CLI::App& app);
Command AddStatusCommand(CLI::App& app);

// ---- options that several subcommands share
// --------------------------------------------------------

// Where a job comes from: a file, flags, --set.
struct JobSource {
  std::string job_path;  // empty: defaults
  std::vector<JobDraft::Override> overrides;
};
// `source` must outlive the parsing.
void AddJobOptions(CLI::App& command, JobSource* source);

// Reads the job, picks the data where nobody did, fills in name and folder. Notices go to standard
// error.
Result<Job> ResolveJob(const JobSource& source);

void AddVerboseOption(CLI::App& command, bool* is_verbose);
void AddJoinOption(CLI::App& command, std::string* endpoint);
void AddStartTimeoutOption(CLI::App& command, uint32_t* start_timeout_ms);

// "tcp://HOST:PORT" or "ipc://PATH".
Status CheckEndpoint(const std::string& flag, const std::string& endpoint);
// And only on loopback, unless `is_insecure`.
Status CheckBind(const std::string& endpoint, bool is_insecure);

// One line on standard error; returns the exit code of the status.
int Report(const Status& status);

}  // namespace pando
