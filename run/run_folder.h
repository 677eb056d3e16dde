// RunFolder: everything a run leaves behind, in one place (docs/job-file.md, [run]):
//   job.toml           the job with every key filled in
//   identity.toml      what decides the weights, as the run began: it goes on with nothing else
//   logs/NAME.log      standard output and error of each process
//   metrics.csv        a row per run.log_every steps, and per evaluation
//   events.jsonl       what happened, one JSON object per line
//   events.out.tfevents.*  the curves, for TensorBoard
//   summary.json       the result, written last
//   final.safetensors  the weights
//   best.safetensors   those of the best test accuracy (snapshot.best)
//   init.safetensors   those that the run started from (model.init)
//   snapshots/         what a run restores lost shards from (run/snapshot_folder)
//   timeline/          what each process did, and when (run.timeline; node/process_timeline)
//   endpoint           where the scheduler listens, or last did: commands take the folder instead
//   scheduler.db       what a scheduler that is started again goes on from; .lock: it is alive
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

// Fills in run.name and run.dir where they are empty.
void ResolveRunNames(std::chrono::system_clock::time_point now, Job* job);

// Of the files that TensorBoard reads (run/tensorboard_file.h).
inline constexpr std::string_view kTensorBoardPrefix = "events.out.tfevents.";
// Their names in a run folder; none of a folder that cannot be listed.
std::vector<std::string> FindTensorBoardFiles(const std::string& run_dir);

class RunFolder {
 public:
  // Which users may look into a new folder, and so read the run's files (FileAccess::kAsFolder).
  enum class Access { kOwner, kByUmask };
  // Makes job.run_dir with job.toml, logs/ and snapshots/ in it. A folder that exists keeps its
  // mode. One that holds anything is refused (kAlreadyExists) unless `is_forced`, and then only
  // files that Pando writes are removed, and none while a scheduler leads the run. REQUIRES:
  // ResolveRunNames.
  static Result<RunFolder> Create(const Job& job, bool is_forced, Access access = Access::kOwner);
  // Whether job.run_dir has a journal of this very job, and no summary that says it completed.
  static bool HoldsUnfinished(const Job& job);
  // The folder of a run that goes on as `job` says: job.toml becomes that, and the summary of an
  // earlier end goes, which would be read as the next one's. kAlreadyExists while a scheduler leads
  // the run: nothing is changed then.
  static Result<RunFolder> Reopen(const Job& job);
  // A folder that Create made, maybe in another process.
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
  // Where the workers of a group without servers meet.
  std::string GroupPath() const { return path_ + "/group"; }
  std::string TimelinePath() const { return path_ + "/timeline"; }
  std::string JournalPath() const { return path_ + "/scheduler.db"; }

  // Made by `pando train` and `run`: of this run alone (net/keys.h).
  std::string KeysPath() const { return path_ + "/keys"; }
  // Removes them, and nothing else that the folder may hold.
  void DropKeys() const;
  // Makes KeysPath a link to the run's keys, so that `pando status RUN_DIR` finds them.
  void LinkKeys(const std::string& keys_folder) const;

  std::string EndpointPath() const { return path_ + "/endpoint"; }
  std::string FilesEndpointPath() const { return path_ + "/files-endpoint"; }

  // Whether a run goes on here with the job and the data that it began with. kInvalidArgument names
  // the key that differs. The data may have moved. A run of an earlier release has no such file.
  Status CheckIdentity(const Job& job, uint64_t data_fingerprint) const;
  // The same, and the first caller writes it down.
  Status KeepIdentity(const Job& job, const DataFacts& data) const;
  Status WriteEndpoint(const std::string& endpoint) const;
  // kNotFound where no scheduler ever listened for this run.
  Result<std::string> ReadEndpoint() const;
  Status WriteSummary(const Summary& summary) const;
  Result<Summary> ReadSummary() const;

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// The number of training samples, as KeepIdentity wrote it; none in a folder of an earlier release.
std::optional<uint64_t> ReadTrainSamples(const RunFolder& folder);

// A step's row of metrics.csv. docs/run-folder.md says what each column means. Those of a window
// are means over its last second or more of training.
struct MetricsRow {
  uint64_t step = 0;  // steps completed, this one included
  double epoch = 0;   // passes over the data, with their fraction
  double loss = 0;    // not a number: not logged, as accuracy; the cell is empty then
  double accuracy = 0;
  double lr = 0;
  double images_per_second = 0;  // of the window
  double images_per_second_mean = 0;
  double elapsed_seconds = 0;  // since the run started
  double step_ms = 0;          // of the window
  double data_stall_ms = 0;    // of the window, per step: computing threads' waits for samples
  double exposed_sync_ms = 0;  // of the window, per step: a computing thread's wait for parameters
  double gpu_memory_mb = 0;    // in use on the fullest GPU of a worker, by all processes; 0: no GPU
  double gpu_percent = 0;      // of time, with a kernel at work: mean of the workers' GPUs
};

// The columns of results in metrics.csv, and their curves: test_accuracy, test_loss, or
// validation_accuracy and so on, and the means of a program's further sums.
struct EvaluationColumns {
  struct Mean {
    std::string name;
    size_t index = 0;  // in Job::eval_sums
  };
  static EvaluationColumns For(const Job& job);

  std::string evaluated_on = "test";  // Job::evaluated_on()
  std::vector<Mean> means = {};
};

// A row that has only these columns. A value that is not a number leaves its cell empty.
struct EvaluationRow {
  uint64_t step = 0;
  double epoch = 0;
  double elapsed_seconds = 0;
  double test_accuracy = 0;
  double test_loss = 0;
  std::vector<double> means = {};  // as EvaluationColumns::means
};

// The newest step's row of metrics.csv; none where the folder has none. Reads the file's end alone.
std::optional<MetricsRow> ReadNewestRow(const RunFolder& folder);

// PatientRows appends rows to a file, and holds those that a full disk does not take until it does.
// Threads: none.
class PatientRows {
 public:
  static constexpr size_t kHeldBytesMax = 16 << 20;  // 200,000 rows of metrics
  explicit PatientRows(RowFile file) : file_(std::move(file)) {}

  // Rows come into the file in the order of the calls. Not ok: some are held, or lost, beyond
  // kHeldBytesMax; the next call tries again.
  Status Append(std::string row);
  Status Flush();
  Status Sync();  // all of them outlive the machine, too
  uint64_t held_count() const { return held_.size(); }
  uint64_t lost_count() const { return lost_count_; }

 private:
  RowFile file_;
  std::deque<std::string> held_;
  size_t held_bytes_ = 0;
  uint64_t lost_count_ = 0;
};

// MetricsFile writes metrics.csv, each row at once: a row that was appended outlives its process.
// What a full disk does not take is held and tried again with every row (PatientRows).
class MetricsFile {
 public:
  // With its heading.
  static Result<MetricsFile> Create(const RunFolder& folder, const EvaluationColumns& columns = {});
  struct Last {
    std::optional<MetricsRow> row;  // of a step
    uint64_t evaluated_step = 0;    // of the last evaluation's row; 0: there is none
  };
  // Goes on after the last whole row.
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

// EventsFile writes events.jsonl: {"time", "elapsed_ms", "event", "details"} per line; held on a
// full disk as metrics are.
class EventsFile {
 public:
  static Result<EventsFile> Create(const RunFolder& folder);  // elapsed_ms counts from here
  // Goes on after the last whole line. Time since that counts to elapsed_ms where the run went on
  // without its scheduler, and does not where nothing ran (`pando resume`).
  enum class Gap { kCounts, kIsLeftOut };
  static Result<EventsFile> Reopen(const RunFolder& folder, Gap gap);
  // When the run began, on the machine's steady clock, gaps left out.
  std::chrono::steady_clock::time_point start() const { return start_; }
  Status Append(std::string_view event, const nlohmann::json& details);
  PatientRows& rows() { return rows_; }

 private:
  explicit EventsFile(RowFile file) : rows_(std::move(file)) {}
  PatientRows rows_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// How many lines of events.jsonl are of this event.
uint64_t CountEvents(const RunFolder& folder, std::string_view event);

// "2026-01-31T12:00:00.123Z" (RFC 3339).
std::string UtcText(std::chrono::system_clock::time_point time);
std::optional<std::chrono::system_clock::time_point> ParseUtcText(const std::string& text);

// Where the file store of a run's scheduler listens (P45), as its folder says: also whose folder it
// is.
struct FilesEndpoint {
  std::string endpoint;
  JobId job;
  bool operator==(const FilesEndpoint&) const = default;

  static Result<FilesEndpoint> Read(const RunFolder& folder);
  std::string ToText() const;
};

}  // namespace pando
