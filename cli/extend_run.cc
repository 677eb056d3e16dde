#include "cli/extend_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "common/output.h"
#include "common/system.h"
#include "run/run_weights.h"
#include "run/sqlite_journal.h"

namespace pando {
namespace {

// The state in a copied journal, as that of a run that has not ended.
Status OpenEnd(const RunFolder& folder) {
  PANDO_ASSIGN_OR_RETURN(SqliteJournal journal,
                         SqliteJournal::Open(folder.JournalPath(), NewIncarnation().value()));
  PANDO_ASSIGN_OR_RETURN(std::optional<SchedulerState> state, journal.ReadState());
  if (!state) return NotFound(folder.JournalPath() + ": holds no state");
  state->is_finished = false;
  return journal.Commit(*state);
}

// Copies what a run goes on from, and its rows so far.
Status CopyState(const RunFolder& from, const RunFolder& to) {
  namespace fs = std::filesystem;
  PANDO_ASSIGN_OR_RETURN(const RunLock lock, RunLock::Acquire(from.path()));
  for (const char* name : {"scheduler.db", "scheduler.db-wal", "metrics.csv", "events.jsonl",
                           "init.safetensors", "engines.json", "snapshots"}) {
    const fs::path source = fs::path(from.path()) / name;
    std::error_code error;
    if (fs::exists(source, error))
      fs::copy(source, fs::path(to.path()) / name, fs::copy_options::recursive, error);
    if (error) return FileError("copy", source, error.value());
  }
  return Status();
}

// Checks before anything is made.
Status CheckForExtension(const RunFolder& from, const JobPlan& plan) {
  const Result<Summary> before = from.ReadSummary();
  if (before.ok() && before->stopped_early) {
    return InvalidArgument(
        fmt::format("the run in {} stopped early, at step {}, and would stop there again; pando "
                    "train --init {} starts another one from its weights",
                    from.path(), before->steps, from.WeightsPath()));
  }
  const Result<SnapshotManifest> newest = ChooseSnapshot(from, std::nullopt);
  if (!newest.ok() || !SqliteJournal::Check(from.JournalPath()).ok()) {
    return NotFound(fmt::format(
        "{} holds no snapshot with its journal to go on from (--serial keeps none); pando train "
        "--init {} starts another run from the weights alone",
        from.path(), from.WeightsPath()));
  }
  const Version last = newest->snapshot.version;
  if (plan.steps.final_version() > last) return Status();
  return InvalidArgument(
      fmt::format("the run in {} has made {} steps, and would end after {}; give more (--steps, "
                  "--epochs)",
                  from.path(), last.value(), plan.steps.step_count()));
}

}  // namespace

Result<RunFolder> ExtendRun(const RunFolder& from, const std::string& wanted_dir,
                            const JobPlan& plan, Job* job) {
  PANDO_RETURN_IF_ERROR(CheckForExtension(from, plan));
  const std::string here = (std::filesystem::path(from.path()) / "").parent_path();
  job->run_dir =
      wanted_dir.empty() ? fmt::format("{}-to-{}", here, plan.steps.step_count()) : wanted_dir;
  job->name = std::filesystem::path(job->run_dir).filename();
  std::error_code ignored;  // making it says what is wrong
  if (std::filesystem::exists(job->run_dir, ignored)) {
    return AlreadyExists(fmt::format(
        "{} exists already; --run-dir NEW takes another folder for the longer run", job->run_dir));
  }
  PANDO_ASSIGN_OR_RETURN(RunFolder to, RunFolder::Create(*job, /*is_forced=*/false));
  Status status = CopyState(from, to);
  if (status.ok()) status = OpenEnd(to);
  if (status.ok()) {
    Say("pando: extending the run in {} to {} steps, in {}\n", from.path(), plan.steps.step_count(),
        to.path());
    return to;
  }
  std::filesystem::remove_all(to.path(), ignored);
  return status;
}

}  // namespace pando
