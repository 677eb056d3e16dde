// RunFolder is the folder of a run, which has all its files (docs/run-folder.md):
//   job.toml           the job, with every key filled in
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
//   endpoint           where the scheduler listens or last listened, for commands
//   scheduler.db       the journal for a restarted scheduler; .lock: a scheduler is alive
// `pando train` and `pando scheduler` create the folder; the scheduler process and the serial
// trainer fill it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "plan/job.h"
#include "run/summary.h"

namespace pando {

// Fills in run.name and run.dir if they are empty.
void ResolveRunNames(std::chrono::system_clock::time_point now, Job* job);

// The prefix of the files that TensorBoard reads (run/output/tensorboard_file.h).
inline constexpr std::string_view kTensorBoardPrefix = "events.out.tfevents.";
// Returns the names of such files in a run folder; none if the folder cannot be listed.
std::vector<std::string> FindTensorBoardFiles(const std::string& run_dir);

// The endpoint of the file store of a run's scheduler (P45), and the job whose folder it stores.
struct FilesEndpoint {
  std::string endpoint;
  JobId job;
  bool operator==(const FilesEndpoint&) const = default;

  std::string ToText() const;
};

class RunFolder {
 public:
  // Which users may enter a new folder, and so read the run's files (FileAccess::kAsFolder).
  enum class Access { kOwner, kByUmask };
  // Creates job.run_dir with job.toml, logs/ and snapshots/ in it. An existing folder keeps its
  // mode. A folder that is not empty is refused (kAlreadyExists) unless `is_forced`. Then only
  // files that Pando writes are removed, and none while a scheduler leads the run. REQUIRES:
  // ResolveRunNames.
  static Result<RunFolder> Create(const Job& job, bool is_forced, Access access = Access::kOwner);
  // Returns whether job.run_dir has a journal of this very job, and no summary of its completion.
  static bool HoldsUnfinished(const Job& job);
  // Opens the folder of a run that continues as `job` says: rewrites job.toml, and removes the
  // summary of an earlier end, which commands would take for the next one. kAlreadyExists: a
  // scheduler leads the run; nothing is changed.
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
  // The folder in which the workers of a group without servers find each other.
  std::string GroupPath() const { return path_ + "/group"; }
  std::string TimelinePath() const { return path_ + "/timeline"; }
  std::string JournalPath() const { return path_ + "/scheduler.db"; }

  // The folder of the run's own keys, which `pando train` and `run` make (net/zmq/keys.h).
  std::string KeysPath() const { return path_ + "/keys"; }
  // Removes the keys, and nothing else that their folder may hold.
  void DropKeys() const;
  // Makes KeysPath a link to the run's keys, so that `pando status RUN_DIR` finds them.
  void LinkKeys(const std::string& keys_folder) const;

  std::string EndpointPath() const { return path_ + "/endpoint"; }
  std::string FilesEndpointPath() const { return path_ + "/files-endpoint"; }

  // Checks that the run continues with the job and data with which it began. kInvalidArgument names
  // the key that differs. The data may have moved. Runs of an earlier release have no such file.
  Status CheckIdentity(const Job& job, uint64_t data_fingerprint) const;
  // Does the same. The first call writes identity.toml.
  Status KeepIdentity(const Job& job, const DataFacts& data) const;
  Status WriteEndpoint(const std::string& endpoint) const;
  // Returns the scheduler's endpoint. kNotFound: no scheduler ever listened for this run.
  Result<std::string> ReadEndpoint() const;
  Result<FilesEndpoint> ReadFilesEndpoint() const;
  Status WriteSummary(const Summary& summary) const;
  Result<Summary> ReadSummary() const;

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Names a run folder and its run in etcd, if the journal is there (node/standby/seat.h).
inline std::string SeatPath(const std::string& run_dir) { return run_dir + "/.etcd"; }
// Returns whether the folder has this file.
bool HasSeat(const std::string& run_dir);
// Returns whether a scheduler has begun a run in the folder, with its journal there or in etcd.
bool HasJournal(const std::string& run_dir);
// kInvalidArgument: the folder's run has its journal in etcd, and would begin again without it.
Status CheckJournalIsHere(const std::string& run_dir);

// Returns the training samples that KeepIdentity wrote; none in a folder of an earlier release.
std::optional<uint64_t> ReadTrainSamples(const RunFolder& folder);

}  // namespace pando
