#include "run/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>

#include "common/hash.h"
#include "common/text.h"
#include "job/job_file.h"
#include "models/zoo.h"
#include "run/run_lock.h"
#include "run/snapshot_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr std::array kOwnFiles{
    "job.toml",         "identity.toml",        "identity.toml.tmp",     "metrics.csv",
    "events.jsonl",     "summary.json",         "final.safetensors",     "best.safetensors",
    "endpoint",         "scheduler.db",         "scheduler.db-wal",      "scheduler.db-shm",
    "summary.json.tmp", "job.toml.tmp",         "final.safetensors.tmp", "best.safetensors.tmp",
    "init.safetensors", "init.safetensors.tmp", "files-endpoint",        ".etcd"};
// Removes the files that an earlier run wrote, and nothing else.
void RemoveOwnFiles(const fs::path& folder) {
  std::error_code ignored;  // a file that stays shows when it is written
  for (const char* name : kOwnFiles) fs::remove(folder / name, ignored);
  RunFolder::Open(folder).DropKeys();
  for (const std::string& name : FindTensorBoardFiles(folder)) fs::remove(folder / name, ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "logs", ignored)) {
    if (entry.path().extension() == ".log") fs::remove(entry.path(), ignored);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "timeline", ignored)) {
    if (entry.path().extension() == ".bin") fs::remove(entry.path(), ignored);
  }
  for (const auto& [path, snapshot] : FindSnapshotFiles(folder / "snapshots"))
    fs::remove(path, ignored);
}

Status CheckFree(const std::string& path, bool is_forced) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return Status();
  if (!fs::is_directory(status)) {
    return AlreadyExists(fmt::format("{} is a file; give a folder with --run-dir", path));
  }
  if (is_forced || fs::is_empty(path, error)) return Status();
  const RunFolder folder = RunFolder::Open(path);
  const Result<Summary> summary = folder.ReadSummary();
  const bool has_ended =
      summary.ok() && (summary->status == kStatusCompleted || HasDiverged(*summary));
  if (fs::exists(folder.JournalPath(), error) && !has_ended) {
    PANDO_RETURN_IF_ERROR(RunLock::Acquire(path).status());  // fails if a scheduler leads the run
    return AlreadyExists(
        fmt::format("run folder {} holds a run that is not completed; pando resume {} continues "
                    "it, --force overwrites it, --run-dir takes another",
                    path, path));
  }
  return AlreadyExists(fmt::format(
      "run folder {} exists already; --force overwrites its run, --run-dir takes another", path));
}

Status WriteText(const std::string& path, const std::string& text) {
  return WriteFileAtomically(path, text, FileAccess::kAsFolder);
}

}  // namespace

// If KeysPath is a link to a folder of keys, leaves it as it is.
void RunFolder::DropKeys() const {
  std::error_code ignored;  // a key that stays shows when it is read
  const fs::path folder = KeysPath();
  if (!fs::is_directory(fs::symlink_status(folder, ignored))) return;
  for (const char* name :
       {"admin.key", "admin.pub", "member.key", "member.pub", "reader.key", "reader.pub"})
    fs::remove(folder / name, ignored);
  fs::remove(folder, ignored);
}

// Ignores errors: without the link, commands need --keys.
void RunFolder::LinkKeys(const std::string& keys_folder) const {
  std::error_code ignored;
  const fs::path link = KeysPath();
  if (fs::is_symlink(fs::symlink_status(link, ignored))) fs::remove(link, ignored);
  fs::create_directory_symlink(fs::absolute(keys_folder, ignored), link, ignored);
}

std::vector<std::string> FindTensorBoardFiles(const std::string& run_dir) {
  std::vector<std::string> names;
  std::error_code unlisted;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_dir, unlisted)) {
    std::string name = entry.path().filename();
    if (name.starts_with(kTensorBoardPrefix)) names.push_back(std::move(name));
  }
  return names;
}

void ResolveRunNames(std::chrono::system_clock::time_point now, Job* job) {
  const bool is_named = !job->name.empty();
  if (!is_named && !job->run_dir.empty()) job->name = fs::path(job->run_dir).filename();
  if (job->name.empty()) {
    const bool is_file = IsNetworkFile(job->model);
    const std::string model = is_file ? fs::path(job->model).stem().string() : job->model;
    job->name = fmt::format("{}-{}-{:%Y%m%d-%H%M%S}", model, job->dataset,
                            fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
  }
  if (!job->run_dir.empty()) return;
  job->run_dir = "runs/" + job->name;
  // Two runs may start within one second without a name.
  std::error_code ignored;  // an unreadable folder shows when it is created
  for (int i = 2; !is_named && fs::exists(job->run_dir, ignored); ++i) {
    job->run_dir = fmt::format("runs/{}-{}", job->name, i);
  }
}

namespace {

// Creates the folders. Parents of the run's folder get the umask's mode: other runs use them too.
Status MakeFolders(const std::string& path, RunFolder::Access access) {
  std::error_code error;
  const fs::path parent = (fs::path(path) / ".").parent_path().parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  const bool is_made =
      !error && mkdir(path.c_str(), access == RunFolder::Access::kOwner ? 0700 : 0777) == 0;
  if (!error && !is_made && errno != EEXIST) error.assign(errno, std::generic_category());
  for (const char* name : {"logs", "snapshots"})
    if (!error) fs::create_directory(fs::path(path) / name, path, error);  // with its parent's mode
  return error ? FileError("create run folder", path, error.value()) : Status();
}

// Returns the values of the text by key, with the key's section.
std::map<std::string, std::string> ReadAssignments(const std::string& text) {
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1) + ".";
    const size_t equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    values[section + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return values;
}

constexpr const char* kServersMaxKey = "run.servers_max";

// Returns the error of a key that has another value than when the run began.
Status HasChanged(const RunFolder& folder, const std::string& key, const std::string& now,
                  const std::string& began) {
  return InvalidArgument(fmt::format(
      "{} was changed after the run began: {} is {} there, and was {}. A resumed run goes on as "
      "it began: change it back, or start another run with pando train",
      folder.JobPath(), key, now, began));
}

// Checks that the shards of the run's snapshots are those of the job.
Status CheckCut(const RunFolder& folder, const Job& job) {
  const Result<std::string> text = ReadTextFile(folder.IdentityPath());
  if (!text.ok()) return Status();  // the run has not begun, or CheckIdentity names the file
  const std::map<std::string, std::string> then = ReadAssignments(*text);
  const std::string now = std::to_string(JobPlan::ServersMax(job));
  const auto began = then.find(kServersMaxKey);
  if (began == then.end() || began->second == now) return Status();
  return HasChanged(folder, kServersMaxKey, now, began->second);
}

// Writes the default of run.servers_max as a value: a run keeps the one that it began with.
Status WriteJob(const RunFolder& folder, Job job) {
  job.servers_max = JobPlan::ServersMax(job);
  return WriteText(folder.JobPath(), WriteJobText(job));
}

}  // namespace

Result<RunFolder> RunFolder::Create(const Job& job, bool is_forced, Access access) {
  const std::string& path = job.run_dir;
  PANDO_CHECK(!path.empty());
  PANDO_RETURN_IF_ERROR(CheckFree(path, is_forced));
  RunFolder folder(path);
  PANDO_RETURN_IF_ERROR(MakeFolders(path, access));
  {
    PANDO_ASSIGN_OR_RETURN(RunLock lock, RunLock::Acquire(path));
    RemoveOwnFiles(path);
  }
  PANDO_RETURN_IF_ERROR(WriteJob(folder, job));
  return folder;
}

Result<RunFolder> RunFolder::Reopen(const Job& job) {
  RunFolder folder(job.run_dir);
  PANDO_ASSIGN_OR_RETURN(RunLock lock, RunLock::Acquire(folder.path()));
  PANDO_RETURN_IF_ERROR(CheckCut(folder, job));
  std::error_code error;
  fs::remove(folder.SummaryPath(), error);
  if (error) return FileError("remove", folder.SummaryPath(), error.value());
  PANDO_RETURN_IF_ERROR(WriteJob(folder, job));
  return folder;
}

namespace {

constexpr const char* kFingerprintKey = "data_fingerprint";
constexpr const char* kTrainSamplesKey = "train_samples";

std::string IdentityFileText(const Job& job, uint64_t data_fingerprint) {
  return fmt::format("{} = \"{:016x}\"\n{} = {}\n{}", kFingerprintKey, data_fingerprint,
                     kServersMaxKey, JobPlan::ServersMax(job), JobIdentityText(job));
}

}  // namespace

Status RunFolder::CheckIdentity(const Job& job, uint64_t data_fingerprint) const {
  std::error_code ignored;  // an unreadable file shows when it is read
  if (!fs::exists(IdentityPath(), ignored) && !ignored) return Status();
  const Result<std::string> text = ReadTextFile(IdentityPath());
  if (!text.ok()) return text.status();
  const std::map<std::string, std::string> then = ReadAssignments(*text);
  for (const auto& [key, now] : ReadAssignments(IdentityFileText(job, data_fingerprint))) {
    const auto began = then.find(key);
    if (key == "data.path" || began == then.end() || began->second == now) continue;
    if (key == kFingerprintKey) {
      return InvalidArgument(fmt::format(
          "{} at {} is not the data that the run in {} began with (fingerprint {} now, {} then); "
          "give the folder of that with --data, or start another run with pando train",
          job.dataset, job.data_path, path_, now, began->second));
    }
    return HasChanged(*this, key, now, began->second);
  }
  return Status();
}

Status RunFolder::KeepIdentity(const Job& job, const DataFacts& data) const {
  PANDO_RETURN_IF_ERROR(CheckIdentity(job, data.fingerprint));
  std::error_code ignored;  // an unreadable folder shows when it is written
  if (fs::exists(IdentityPath(), ignored)) return Status();
  return WriteText(IdentityPath(), fmt::format("{} = {}\n{}", kTrainSamplesKey, data.train_samples,
                                               IdentityFileText(job, data.fingerprint)));
}

std::optional<uint64_t> ReadTrainSamples(const RunFolder& folder) {
  const Result<std::string> text = ReadTextFile(folder.IdentityPath());
  if (!text.ok()) return std::nullopt;
  const std::map<std::string, std::string> values = ReadAssignments(*text);
  const auto count = values.find(kTrainSamplesKey);
  if (count == values.end() || count->second == "0") return std::nullopt;
  return ParseNumber<uint64_t>(count->second);
}

bool HasSeat(const std::string& run_dir) {
  std::error_code ignored;  // an unreadable folder is not ours
  return fs::exists(SeatPath(run_dir), ignored);
}

bool HasJournal(const std::string& run_dir) {
  std::error_code ignored;  // an unreadable folder is not ours
  return fs::exists(RunFolder::Open(run_dir).JournalPath(), ignored) || HasSeat(run_dir);
}

Status CheckJournalIsHere(const std::string& run_dir) {
  const Result<std::string> seat = ReadTextFile(SeatPath(run_dir));
  if (!seat.ok()) return Status();
  return InvalidArgument(fmt::format(
      "the journal of the run in {} is in etcd: start its scheduler with pando scheduler, "
      "--run-dir "
      "{}, --etcd and --etcd-prefix {}, and with --resume if all processes of the run are gone",
      run_dir, run_dir, seat->substr(0, seat->find('\n'))));
}

bool RunFolder::HoldsUnfinished(const Job& job) {
  const RunFolder folder(job.run_dir);
  if (!HasJournal(job.run_dir)) return false;
  Result<Job> begun = ReadJobFile(folder.JobPath());
  if (!begun.ok() || JobIdentityText(*begun) != JobIdentityText(job)) return false;
  Result<Summary> summary = folder.ReadSummary();
  return !summary.ok() || summary->status != kStatusCompleted;
}

std::string RunFolder::LogPath(std::string_view process_name) const {
  return fmt::format("{}/logs/{}.log", path_, process_name);
}

Status RunFolder::WriteEndpoint(const std::string& endpoint) const {
  return WriteText(EndpointPath(), endpoint + "\n");
}

Result<std::string> RunFolder::ReadEndpoint() const {
  Result<std::string> text = ReadTextFile(EndpointPath());
  if (text.ok()) text->erase(text->find_last_not_of('\n') + 1);
  return text;
}

Result<FilesEndpoint> RunFolder::ReadFilesEndpoint() const {
  PANDO_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(FilesEndpointPath()));
  const size_t line = text.find('\n');
  const std::optional<uint64_t> job = line == std::string::npos
                                          ? std::nullopt
                                          : ParseHex(std::string_view(text).substr(line + 1, 16));
  if (!job) return Corrupt(FilesEndpointPath() + ": expected an endpoint and a job's id");
  return FilesEndpoint{text.substr(0, line), JobId(*job)};
}

std::string FilesEndpoint::ToText() const {
  return fmt::format("{}\n{}\n", endpoint, HexText(job.value()));
}

Status RunFolder::WriteSummary(const Summary& summary) const {
  return WriteText(SummaryPath(), ToJson(summary));
}

Result<Summary> RunFolder::ReadSummary() const {
  PANDO_ASSIGN_OR_RETURN(std::string text, ReadTextFile(SummaryPath()));
  return SummaryFromJson(text, SummaryPath());
}

}  // namespace pando
