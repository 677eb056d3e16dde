// `pando timeline`, and the trace that a run makes at its end.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "run/timeline_trace.h"

namespace pando {
namespace {

struct TimelineOptions {
  std::vector<std::string> sources;
  std::string out;
  bool is_summary = false;
};

constexpr const char* kNotes =
    "Examples:\n"
    "  pando timeline runs/first --out trace.json\n"
    "  pando timeline runs/first --summary           seconds by layer and wait, as a table\n"
    "  pando timeline runs/first /gathered/from/another/machine --out trace.json\n"
    "\n"
    "A run records where its job has run.timeline (pando train --timeline FILE): each process\n"
    "into RUN_DIR/timeline on its own machine. Open the trace at https://ui.perfetto.dev, or in\n"
    "chrome://tracing.\n"
    "\n"
    "Its rows, of each life of each process:\n"
    "  worker     compute N: layers forward and backward, sums; waits for work, parameters, "
    "samples\n"
    "             (take samples in); score: the loss; finish: what is left of a micro-batch\n"
    "             protocol: push, a shard's gradients leave; pull, its parameters are copied in\n"
    "             exposed_sync_ms: waits for parameters, of a computing thread and a step\n"
    "  server     lane N: aggregate, update, replicate, commit, reply; and from root to commit\n"
    "  scheduler  run: steps; marks for views, faults, evaluations, and what events.jsonl has\n"
    "Layers that are computed in one go are one span. With a GPU a layer's span is its launch.\n";

Status MakeTrace(const std::vector<std::string>& sources, const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(TraceSummary trace, WriteTrace(sources, path));
  for (const std::string& warning : trace.warnings) Say("pando: timeline: {}\n", warning);
  Say("pando: timeline of {} processes, {} spans, in {}\n", trace.process_count, trace.span_count,
      path);
  return Status();
}

// Prints a table of sums. Shares refer to the time of the role's threads.
Status PrintSums(const std::vector<std::string>& sources) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<TimelineSum> sums, SumTimeline(sources));
  std::map<std::string, double> seconds;
  size_t width = 4;
  for (const TimelineSum& sum : sums) {
    seconds[sum.role] += sum.seconds;
    width = std::max(width, sum.name.size());
  }
  Print("{:<10} {:<10} {:<{}} {:>10} {:>8} {:>8}\n", "ROLE", "KIND", "WHAT", width, "SECONDS",
        "SHARE", "SPANS");
  for (const TimelineSum& sum : sums) {
    Print("{:<10} {:<10} {:<{}} {:>10.3f} {:>6.1f} % {:>8}\n", sum.role, sum.category, sum.name,
          width, sum.seconds, 100 * sum.seconds / std::max(1e-9, seconds[sum.role]),
          sum.span_count);
  }
  return Status();
}

Result<int> RunTimeline(const TimelineOptions& options) {
  if (options.out.empty() && !options.is_summary)
    return InvalidArgument("give --out FILE for a trace, or --summary for a table");
  if (!options.out.empty()) PANDO_RETURN_IF_ERROR(MakeTrace(options.sources, options.out));
  if (options.is_summary) PANDO_RETURN_IF_ERROR(PrintSums(options.sources));
  return kExitCompleted;
}

}  // namespace

Status CheckTimelinePath(const Job& job) {
  if (job.timeline.empty()) return Status();
  const std::filesystem::path path(job.timeline);
  std::error_code ignored;  // an unreadable file counts as missing
  const bool has_folder =
      path.parent_path().empty() || std::filesystem::is_directory(path.parent_path(), ignored);
  if (has_folder && !std::filesystem::is_directory(path, ignored)) return Status();
  return InvalidArgument(fmt::format("--timeline {}: {}; give a file in a folder that is there",
                                     job.timeline,
                                     has_folder ? "is a folder" : "its folder does not exist"));
}

int ConcludeTimeline(const Job& job, const RunFolder& folder, int exit_code) {
  if (job.timeline.empty()) return exit_code;
  const Status made = MakeTrace({folder.path()}, job.timeline);
  if (made.ok()) return exit_code;
  const int trace_code = Report(made);
  Say("pando: the records are kept; to read them: pando timeline {} --out FILE\n", folder.path());
  return exit_code == kExitCompleted ? trace_code : exit_code;
}

Subcommand AddTimelineCommand(CLI::App& app) {
  auto options = std::make_shared<TimelineOptions>();
  CLI::App& command =
      DeclareCommand(app, "timeline",
                     "Makes a Chrome trace of what the processes of a run did, and when.", kNotes);
  AddOption(command, "SOURCE", &options->sources,
            "run folders, folders of timelines gathered from other machines, or such files")
      .Required();
  AddOption(command, "--out FILE", &options->out, "the trace to write");
  AddFlag(command, "--summary", &options->is_summary,
          "print the seconds that threads spent, by layer and by wait");
  return [options] { return RunTimeline(*options); };
}

}  // namespace pando
