#include "cli/extend_run.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>
#include <vector>

#include "common/atomic_file.h"
#include "common/output.h"
#include "common/system.h"
#include "job/job_file.h"
#include "run/run_lock.h"
#include "run/run_weights.h"
#include "run/sqlite_journal.h"
#include "scheduler/evaluation/evaluation.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartSuffix = ".part";  // the suffix of a folder that is being made

// Drops the evaluations that the longer run does not make, such as that of the shorter run's end.
void KeepDue(const JobPlan& plan, Version last, std::vector<EvaluationSummary>* evaluations) {
  std::erase_if(*evaluations, [&](const EvaluationSummary& evaluation) {
    return evaluation.version > last || !plan.IsEvaluationDue(evaluation.version);
  });
}

// Says how another run can start from the weights of a run that cannot be extended.
std::string OtherStart(const RunFolder& from) {
  std::error_code ignored;  // the file is then not named
  if (fs::exists(from.WeightsPath(), ignored))
    return fmt::format("pando train --init {} starts another from its weights", from.WeightsPath());
  return fmt::format("`pando export {} FILE` and pando train --init FILE start another run",
                     from.path());
}

Status StopsAtOnce(const RunFolder& from, uint64_t step) {
  return InvalidArgument(fmt::format("the run in {} stopped early, at step {}, and would again; {}",
                                     from.path(), step, OtherStart(from)));
}

// Returns where the longer run begins. Rows and evaluations beyond it belong to another trajectory.
Result<Version> FindBeginning(const RunFolder& from, const JobPlan& plan) {
  Result<Summary> before = from.ReadSummary();
  if (!before.ok() && before.status().code() != StatusCode::kNotFound) return before.status();
  if (before.ok() && before->stopped_early) return StopsAtOnce(from, before->steps);
  const Result<SnapshotManifest> newest = ChooseSnapshot(from, std::nullopt);
  if (!newest.ok() && newest.status().code() != StatusCode::kNotFound) return newest.status();
  const bool has_end =
      newest.ok() && before.ok() && Version(before->steps) == newest->snapshot.version;
  if (!has_end && before.ok() && before->status == kStatusCompleted)
    return NotFound(fmt::format("{} has no snapshot of its last step (--serial keeps none); {}",
                                from.path(), OtherStart(from)));
  if (!has_end)
    return InvalidArgument(fmt::format(
        "the run in {0} has not ended with a snapshot: resume it first (pando resume {0})",
        from.path()));
  PANDO_RETURN_IF_ERROR(SqliteJournal::Check(from.JournalPath()));
  KeepDue(plan, newest->snapshot.version, &before->evaluations);
  if (const auto stop = StopVersion(plan.job, before->evaluations))
    return StopsAtOnce(from, stop->value());
  return newest->snapshot.version;
}

// Makes a path absolute, without a slash at its end, so that a name can be added to it.
std::string PlainPath(const std::string& path) {
  std::error_code ignored;  // the working folder is gone, so nothing can be created
  const fs::path plain = fs::absolute(path, ignored).lexically_normal();
  return plain.has_filename() ? plain : plain.parent_path();
}

Status ChooseFolder(const RunFolder& from, const std::string& wanted_dir, uint64_t step_count,
                    Job* job) {
  job->run_dir = wanted_dir.empty() ? fmt::format("{}-to-{}", PlainPath(from.path()), step_count)
                                    : PlainPath(wanted_dir);
  PANDO_RETURN_IF_ERROR(CheckJobValue(*FindJobKey("run.dir"), job->run_dir));
  job->name = fs::path(job->run_dir).filename();
  std::error_code ignored;  // creating it reports the fault
  if (!fs::exists(job->run_dir, ignored)) return Status();
  return AlreadyExists(fmt::format(
      "{} exists already; --run-dir NEW takes another folder for the longer run", job->run_dir));
}

// Copies the files that the longer run needs, with the rows of metrics and events so far.
Status CopyState(const RunFolder& from, const RunFolder& to) {
  std::vector<std::string> names{"scheduler.db", "scheduler.db-wal", "metrics.csv",
                                 "events.jsonl", "init.safetensors", "snapshots"};
  std::ranges::move(FindTensorBoardFiles(from.path()), std::back_inserter(names));
  for (const std::string& name : names) {
    const fs::path source = fs::path(from.path()) / name;
    std::error_code error;
    if (fs::exists(source, error))
      fs::copy(source, fs::path(to.path()) / name, fs::copy_options::recursive, error);
    if (error) return FileError("copy", source, error.value());
  }
  return Status();
}

// Changes the state in a copied journal to that of the longer run, which has not ended.
Status OpenEnd(const RunFolder& folder, const JobPlan& plan, Version last) {
  PANDO_ASSIGN_OR_RETURN(SqliteJournal journal,
                         SqliteJournal::Open(folder.JournalPath(), NewIncarnation().value()));
  PANDO_ASSIGN_OR_RETURN(std::optional<SchedulerState> state, journal.ReadState());
  if (!state) return NotFound(folder.JournalPath() + ": holds no state");
  state->is_completed = false;
  KeepDue(plan, last, &state->evaluations);
  return journal.Commit(*state);
}

// Removes the folder that an earlier try left. Its files would become part of the longer run.
Status RemovePart(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? FileError("remove", path, error.value()) : Status();
}

// Makes the whole folder under another name, then renames it. `job` names the final place.
Status MakeFolder(const RunFolder& from, const JobPlan& plan, Version last, Job job) {
  const std::string final_dir = job.run_dir;
  job.run_dir += kPartSuffix;
  std::error_code ignored;  // only its owner then has access
  const fs::perms others = fs::status(from.path(), ignored).permissions() & ~fs::perms::owner_all;
  PANDO_ASSIGN_OR_RETURN(
      const RunFolder part,
      RunFolder::Create(job, /*is_forced=*/false,
                        !ignored && others != fs::perms::none ? RunFolder::Access::kByUmask
                                                              : RunFolder::Access::kOwner));
  PANDO_RETURN_IF_ERROR(CopyState(from, part));
  PANDO_RETURN_IF_ERROR(OpenEnd(part, plan, last));
  job.run_dir = final_dir;
  PANDO_RETURN_IF_ERROR(
      WriteFileAtomically(part.JobPath(), WriteJobText(job), FileAccess::kAsFolder));
  const UniqueFd fd(open(part.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open() || syncfs(fd.get()) != 0) return FileError("sync", part.path(), errno);
  if (rename(part.path().c_str(), final_dir.c_str()) == 0) return Status();
  return FileError("rename to " + final_dir + " the folder", part.path(), errno);
}

}  // namespace

Result<RunFolder> ExtendRun(const RunFolder& from, const std::string& wanted_dir,
                            const JobPlan& plan, Job* job) {
  PANDO_ASSIGN_OR_RETURN(const RunLock lock, RunLock::Acquire(from.path()));
  PANDO_ASSIGN_OR_RETURN(const Version last, FindBeginning(from, plan));
  PANDO_RETURN_IF_ERROR(ChooseFolder(from, wanted_dir, plan.steps.step_count(), job));
  const std::string part = job->run_dir + kPartSuffix;
  PANDO_RETURN_IF_ERROR(RemovePart(part));
  if (Status made = MakeFolder(from, plan, last, *job); !made.ok()) {
    if (const Status gone = RemovePart(part); !gone.ok()) Say("pando: {}\n", gone.message());
    return made;
  }
  Say("pando: extending the run in {} to {} steps, in {}\n", from.path(), plan.steps.step_count(),
      job->run_dir);
  return RunFolder::Open(job->run_dir);
}

}  // namespace pando
