// RunFolder: all files of a run in one folder (docs/job-file.md, [run]):
//   job.toml           the job with every key filled in
//   identity.toml      the values that decide the weights; the run continues only with these
//   logs/NAME.log      standard output and error of each process
//   metrics.csv        a row per run.log_every steps, and per evaluation
//   events.jsonl       the run's events, one JSON object per line
//   events.out.tfevents.*  the curves, for TensorBoard
//   summary.json       the result, written last
//   final.safetensors  the weights
//   best.safetensors   the weights with the best test accuracy (snapshot.best)
//   init.safetensors   the weights from which the run started (model.init)
//   snapshots/         the snapshots from which a run restores lost shards (run/snapshot_folder)
//   timeline/          each process's timeline (run.timeline; node/process_timeline)
//   endpoint           where the scheduler listens or last listened; commands take the folder
//   scheduler.db       the journal for a restarted scheduler; .lock: a scheduler is alive
// `pando train` and `pando scheduler` create it; the scheduler process and the serial trainer fill
// it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/atomic_file.h"
#include "common/status.h"
#include "plan/job.h"
#include "run/run_lock.h"
#include "run/summary.h"

namespace pando {

// Fills in run.name and run.dir if they are empty.
void ResolveRunNames(std::chrono::system_clock::time_point now, Job* job);

// The prefix of the files that TensorBoard reads (run/tensorboard_file.h).
inline constexpr std::string_view kTensorBoardPrefix = "events.out.tfevents.";
// Returns their names in a run folder; none if the folder cannot be listed.
std::vector<std::string> FindTensorBoardFiles(const std::string& run_dir);

class RunFolder {
 public:
  // Which users may enter a new folder, and so read the run's files (FileAccess::kAsFolder).
  enum class Access { kOwner, kByUmask };
  // Creates job.run_dir with job.toml, logs/ and snapshots/ in it. An existing folder keeps its
  // mode. A folder that is not empty is refused (kAlreadyExists) unless `is_forced`. Then only
  // files that Pando writes are removed, and none while a scheduler leads the run. REQUIRES:
  // ResolveRunNames.
  static Result<RunFolder> Create(const Job& job, bool is_forced, Access access = Access::kOwner);
  // Whether job.run_dir has a journal of this very job and no summary of its completion.
  static bool HoldsUnfinished(const Job& job);
  // Opens the folder of a run that continues as `job` says: rewrites job.toml, and removes the
  // summary of an earlier end, which would be taken for the next one. kAlreadyExists: a scheduler
  // leads the run; nothing is changed.
  static Result<RunFolder> Reopen(const Job& job);
  // Opens a folder that Create made, perhaps in another process.
  static RunFolder Open(std::string path) { return RunFolder(std::move(path)); }

  const std::string& path() const { return path_; }
  std::string JobPath() const { return path_ + "/job.toml"; }
  std::string IdentityPath() const { return path_ + "/identity.toml"; }
  std::string LogPath(std::string_view process_name) const;
  std::string MetricsPath() const { return path_ + "/metrics.csv"; }
  std::string EventsPath() const { return path_ + "/events.jsonl"; }
  std::string SummaryPath() const { return path_ + "/summary.json"; }
  std::string WeightsPath() const { return path_ + "/final.safetensors"; }
  std::string BestWeightsPath() const { return path_ + "/best.safetensors"; }
  std::string SnapshotsPath() const { return path_ + "/snapshots"; }
  // Where the workers of a group without servers find each other.
  std::string GroupPath() const { return path_ + "/group"; }
  std::string TimelinePath() const { return path_ + "/timeline"; }
  std::string JournalPath() const { return path_ + "/scheduler.db"; }

  // The run's own keys, which `pando train` and `run` make (net/keys.h).
  std::string KeysPath() const { return path_ + "/keys"; }
  // Removes the keys, and nothing else that the folder may hold.
  void DropKeys() const;
  // Makes KeysPath a link to the run's keys, so that `pando status RUN_DIR` finds them.
  void LinkKeys(const std::string& keys_folder) const;

  std::string EndpointPath() const { return path_ + "/endpoint"; }
  std::string FilesEndpointPath() const { return path_ + "/files-endpoint"; }

  // Checks that the run continues with the job and data with which it began. kInvalidArgument names
  // the key that differs. The data may have moved. A run of an earlier release has no such file.
  Status CheckIdentity(const Job& job, uint64_t data_fingerprint) const;
  // Does the same, and the first caller writes the file.
  Status KeepIdentity(const Job& job, const DataFacts& data) const;
  Status WriteEndpoint(const std::string& endpoint) const;
  // kNotFound: no scheduler ever listened for this run.
  Result<std::string> ReadEndpoint() const;
  Status WriteSummary(const Summary& summary) const;
  Result<Summary> ReadSummary() const;

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Returns the training samples that KeepIdentity wrote; none in a folder of an earlier release.
std::optional<uint64_t> ReadTrainSamples(const RunFolder& folder);

// A step's row of metrics.csv; docs/run-folder.md explains each column. Values of a window are
// means over its last second or more of training.
struct MetricsRow {
  uint64_t step = 0;  // completed steps, with this one
  double epoch = 0;   // passes over the data, with the fraction
  double loss = 0;    // NaN: not logged, and the cell is empty; the same for accuracy
  double accuracy = 0;
  double lr = 0;
  double images_per_second = 0;  // in the window
  double images_per_second_mean = 0;
  double elapsed_seconds = 0;  // since the run started
  double step_ms = 0;          // in the window
  double data_stall_ms = 0;    // in the window, per step: computing threads' waits for samples
  double exposed_sync_ms = 0;  // in the window, per step: a computing thread's wait for parameters
  double gpu_memory_mb = 0;    // used by all processes on the fullest GPU of a worker; 0: no GPU
  double gpu_percent = 0;      // of time with a running kernel: mean over the workers' GPUs
};

// The result columns of metrics.csv, and their curves: test_accuracy, test_loss, or
// validation_accuracy and so on, and the means of a program's other sums.
struct EvaluationColumns {
  struct Mean {
    std::string name;
    size_t index = 0;  // in Job::eval_sums
  };
  static EvaluationColumns For(const Job& job);

  std::string evaluated_on = "test";  // Job::evaluated_on()
  std::vector<Mean> means = {};
};

// A row with only these columns. A value that is NaN leaves its cell empty.
struct EvaluationRow {
  uint64_t step = 0;
  double epoch = 0;
  double elapsed_seconds = 0;
  double test_accuracy = 0;
  double test_loss = 0;
  std::vector<double> means = {};  // as in EvaluationColumns::means
};

// Returns the newest step's row of metrics.csv, or none. Reads only the file's end.
std::optional<MetricsRow> ReadNewestRow(const RunFolder& folder);

// PatientRows appends rows to a file, and holds rows that a full disk refuses until it takes them.
// Threads: none.
class PatientRows {
 public:
  static constexpr size_t kHeldBytesMax = 16 << 20;  // 200,000 rows of metrics
  explicit PatientRows(RowFile file) : file_(std::move(file)) {}

  // Rows enter the file in the order of the calls. Not ok: some rows are held, or lost beyond
  // kHeldBytesMax; the next call tries again.
  Status Append(std::string row);
  Status Flush();
  Status Sync();  // afterwards the rows survive a power cut
  uint64_t held_count() const { return held_.size(); }
  uint64_t lost_count() const { return lost_count_; }

 private:
  RowFile file_;
  std::deque<std::string> held_;
  size_t held_bytes_ = 0;
  uint64_t lost_count_ = 0;
};

// MetricsFile writes metrics.csv, each row at once, so that an appended row outlives its process.
// Rows that a full disk refuses are held and retried with every row (PatientRows).
class MetricsFile {
 public:
  // Also writes the heading.
  static Result<MetricsFile> Create(const RunFolder& folder, const EvaluationColumns& columns = {});
  struct Last {
    std::optional<MetricsRow> row;  // of a step
    uint64_t evaluated_step = 0;    // of the last evaluation's row; 0: none
  };
  // Continues after the last whole row.
  static Result<MetricsFile> Reopen(const RunFolder& folder, Last* last,
                                    const EvaluationColumns& columns = {});
  Status Append(const MetricsRow& row);
  Status Append(const EvaluationRow& row);
  PatientRows& rows() { return rows_; }

 private:
  MetricsFile(RowFile file, size_t mean_count) : rows_(std::move(file)), mean_count_(mean_count) {}
  PatientRows rows_;
  size_t mean_count_;  // columns of EvaluationColumns::means; 0 in a file of an earlier release
};

// EventsFile writes events.jsonl: {"time", "elapsed_ms", "event", "details"} per line. A full disk
// holds its rows as it does those of metrics.
class EventsFile {
 public:
  static Result<EventsFile> Create(const RunFolder& folder);  // elapsed_ms counts from here
  // Continues after the last whole line. The time since then counts in elapsed_ms if the run
  // continued without its scheduler, and does not if nothing ran (`pando resume`).
  enum class Gap { kCounts, kIsLeftOut };
  static Result<EventsFile> Reopen(const RunFolder& folder, Gap gap);
  // The beginning of the run, on the machine's steady clock, without gaps.
  std::chrono::steady_clock::time_point start() const { return start_; }
  Status Append(std::string_view event, const nlohmann::json& details);
  PatientRows& rows() { return rows_; }

 private:
  explicit EventsFile(RowFile file) : rows_(std::move(file)) {}
  PatientRows rows_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Counts the lines of events.jsonl with this event.
uint64_t CountEvents(const RunFolder& folder, std::string_view event);

// Example: "2026-01-31T12:00:00.123Z" (RFC 3339).
std::string UtcText(std::chrono::system_clock::time_point time);
std::optional<std::chrono::system_clock::time_point> ParseUtcText(const std::string& text);

// The endpoint of the file store of a run's scheduler (P45), as its folder has it. It also says
// whose folder it is.
struct FilesEndpoint {
  std::string endpoint;
  JobId job;
  bool operator==(const FilesEndpoint&) const = default;

  static Result<FilesEndpoint> Read(const RunFolder& folder);
  std::string ToText() const;
};

}  // namespace pando
