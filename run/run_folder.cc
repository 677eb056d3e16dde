#include "run/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "common/hash.h"
#include "job/job_file.h"
#include "models/zoo.h"
#include "run/snapshot_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr std::array kOwnFiles{
    "job.toml",         "identity.toml",        "identity.toml.tmp",     "metrics.csv",
    "events.jsonl",     "summary.json",         "final.safetensors",     "best.safetensors",
    "endpoint",         "scheduler.db",         "scheduler.db-wal",      "scheduler.db-shm",
    "summary.json.tmp", "job.toml.tmp",         "final.safetensors.tmp", "best.safetensors.tmp",
    "init.safetensors", "init.safetensors.tmp", "files-endpoint"};
// Removes the files that earlier runs wrote, and nothing else.
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

// Leaves a link to a folder of keys as it is.
void RunFolder::DropKeys() const {
  std::error_code ignored;  // a key that stays shows when it is read
  const fs::path folder = KeysPath();
  if (!fs::is_directory(fs::symlink_status(folder, ignored))) return;
  for (const char* name :
       {"admin.key", "admin.pub", "member.key", "member.pub", "reader.key", "reader.pub"})
    fs::remove(folder / name, ignored);
  fs::remove(folder, ignored);
}

// Without the link, commands need --keys.
void RunFolder::LinkKeys(const std::string& keys_folder) const {
  std::error_code ignored;
  const fs::path link = KeysPath();
  if (fs::is_symlink(fs::symlink_status(link, ignored))) fs::remove(link, ignored);
  fs::create_directory_symlink(fs::absolute(keys_folder, ignored), link, ignored);
}

std::string UtcText(std::chrono::system_clock::time_point time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time - seconds).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), ms);
}

std::optional<std::chrono::system_clock::time_point> ParseUtcText(const std::string& text) {
  std::tm parts{};
  int ms = 0;
  int length = 0;
  const int count =
      std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &parts.tm_year, &parts.tm_mon,
                  &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &ms, &length);
  if (count != 7 || static_cast<size_t>(length) != text.size()) return std::nullopt;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(timegm(&parts)) + std::chrono::milliseconds(ms);
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

// Parents of the run's folder get the umask's mode, since other runs use them too.
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
  PANDO_RETURN_IF_ERROR(WriteText(folder.JobPath(), WriteJobText(job)));
  return folder;
}

Result<RunFolder> RunFolder::Reopen(const Job& job) {
  RunFolder folder(job.run_dir);
  PANDO_ASSIGN_OR_RETURN(RunLock lock, RunLock::Acquire(folder.path()));
  std::error_code error;
  fs::remove(folder.SummaryPath(), error);
  if (error) return FileError("remove", folder.SummaryPath(), error.value());
  PANDO_RETURN_IF_ERROR(WriteText(folder.JobPath(), WriteJobText(job)));
  return folder;
}

namespace {

constexpr const char* kFingerprintKey = "data_fingerprint";
constexpr const char* kTrainSamplesKey = "train_samples";

std::string IdentityFileText(const Job& job, uint64_t data_fingerprint) {
  return fmt::format("{} = \"{:016x}\"\n{}", kFingerprintKey, data_fingerprint,
                     JobIdentityText(job));
}

// Returns the written values by key, with its section.
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
    return InvalidArgument(fmt::format(
        "{} was changed after the run began: {} is {} there, and was {}. A resumed run goes on as "
        "it began: change it back, or start another run with pando train",
        JobPath(), key, now, began->second));
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

bool RunFolder::HoldsUnfinished(const Job& job) {
  const RunFolder folder(job.run_dir);
  std::error_code ignored;  // an unreadable folder is not ours
  if (!fs::exists(folder.JournalPath(), ignored)) return false;
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

Result<FilesEndpoint> FilesEndpoint::Read(const RunFolder& folder) {
  PANDO_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(folder.FilesEndpointPath()));
  const size_t line = text.find('\n');
  const std::optional<uint64_t> job = line == std::string::npos
                                          ? std::nullopt
                                          : ParseHex(std::string_view(text).substr(line + 1, 16));
  if (!job) return Corrupt(folder.FilesEndpointPath() + ": expected an endpoint and a job's id");
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

// ---- rows that a full disk refuses -------------------------------------------------------------

Status PatientRows::Append(std::string row) {
  if (held_bytes_ + row.size() > kHeldBytesMax) {
    Status status = Flush();
    if (!status.ok()) {
      ++lost_count_;
      return status;
    }
  }
  held_bytes_ += row.size();
  held_.push_back(std::move(row));
  return Flush();
}

Status PatientRows::Flush() {
  while (!held_.empty()) {
    PANDO_RETURN_IF_ERROR(file_.Append(held_.front()));
    held_bytes_ -= held_.front().size();
    held_.pop_front();
  }
  return Status();
}

Status PatientRows::Sync() {
  PANDO_RETURN_IF_ERROR(Flush());
  return file_.Sync();
}

// ---- metrics.csv --------------------------------------------------------------------------------

namespace {

// A column that follows "step" in a step's row.
struct MetricsColumn {
  const char* name;
  double MetricsRow::*value;
  const char* format;
};
constexpr std::array<MetricsColumn, 12> kMetricsColumns{{
    {"epoch", &MetricsRow::epoch, "{:.6g}"},
    {"loss", &MetricsRow::loss, "{:.9g}"},
    {"accuracy", &MetricsRow::accuracy, "{:.9g}"},
    {"lr", &MetricsRow::lr, "{:.7g}"},
    {"images_per_second", &MetricsRow::images_per_second, "{:.6g}"},
    {"images_per_second_mean", &MetricsRow::images_per_second_mean, "{:.6g}"},
    {"elapsed_seconds", &MetricsRow::elapsed_seconds, "{:.3f}"},
    {"step_ms", &MetricsRow::step_ms, "{:.3f}"},
    {"data_stall_ms", &MetricsRow::data_stall_ms, "{:.3f}"},
    {"exposed_sync_ms", &MetricsRow::exposed_sync_ms, "{:.3f}"},
    {"gpu_memory_mb", &MetricsRow::gpu_memory_mb, "{:.1f}"},
    {"gpu_percent", &MetricsRow::gpu_percent, "{:.1f}"},
}};

std::string MetricsHeading(const EvaluationColumns& columns) {
  std::string heading = "step";
  for (const MetricsColumn& column : kMetricsColumns) heading.append(",").append(column.name);
  heading += fmt::format(",{0}_accuracy,{0}_loss", columns.evaluated_on);
  for (const EvaluationColumns::Mean& mean : columns.means)
    heading += fmt::format(",{}_{}", columns.evaluated_on, mean.name);
  return heading;
}

// Reads numbers between commas; an empty cell becomes NaN. Returns the text behind them, or none if
// a number is missing.
std::optional<std::string_view> ParseNumbers(std::string_view text,
                                             std::initializer_list<double*> numbers) {
  const char* at = text.data();
  const char* const last = at + text.size();
  for (double* number : numbers) {
    if (at != text.data() && (at == last || *at++ != ',')) return std::nullopt;
    *number = NAN;
    if (at == last || *at == ',') continue;
    const std::from_chars_result end = std::from_chars(at, last, *number);
    if (end.ec != std::errc{}) return std::nullopt;
    at = end.ptr;
  }
  return std::string_view(at, last);
}

// Parses a step's row. Returns none for the heading, an evaluation's row, and an incomplete row.
std::optional<MetricsRow> ParseStepRow(std::string_view text) {
  MetricsRow row;
  double step = 0;
  const auto rest = ParseNumbers(
      text, {&step, &row.epoch, &row.loss, &row.accuracy, &row.lr, &row.images_per_second,
             &row.images_per_second_mean, &row.elapsed_seconds, &row.step_ms, &row.data_stall_ms,
             &row.exposed_sync_ms, &row.gpu_memory_mb, &row.gpu_percent});
  const bool is_step = rest && rest->starts_with(",,") && !std::isnan(row.step_ms) &&
                       rest->find_first_not_of(',') == std::string_view::npos;
  row.step = is_step ? static_cast<uint64_t>(step) : 0;
  return is_step ? std::optional(row) : std::nullopt;
}

std::string Cell(double value, const char* format = "{:.9g}") {
  return std::isnan(value) ? "," : "," + fmt::format(fmt::runtime(format), value);
}

}  // namespace

EvaluationColumns EvaluationColumns::For(const Job& job) {
  EvaluationColumns columns{.evaluated_on = job.evaluated_on()};
  const std::vector<std::string> names = MeanNames(job);
  for (size_t i = 0; i < names.size(); ++i) {
    if (job.eval_sums[i] != "loss_sum" && job.eval_sums[i] != "correct")
      columns.means.push_back({names[i], i});
  }
  return columns;
}

std::optional<MetricsRow> ReadNewestRow(const RunFolder& folder) {
  constexpr std::streamoff kTailBytes = 16 << 10;  // 100 rows and more, with evaluations among them
  std::ifstream file(folder.MetricsPath(), std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) return std::nullopt;
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  std::optional<MetricsRow> newest;
  for (std::string line;
       std::getline(file, line) && !file.eof();) {  // leaves out a torn last line
    if (const std::optional<MetricsRow> row = ParseStepRow(line)) newest = row;
  }
  return newest;
}

Result<MetricsFile> MetricsFile::Create(const RunFolder& folder, const EvaluationColumns& columns) {
  PANDO_ASSIGN_OR_RETURN(RowFile file, RowFile::Create(folder.MetricsPath()));
  MetricsFile metrics(std::move(file), columns.means.size());
  PANDO_RETURN_IF_ERROR(metrics.rows_.Append(MetricsHeading(columns) + "\n"));
  return metrics;
}

Result<MetricsFile> MetricsFile::Reopen(const RunFolder& folder, Last* last,
                                        const EvaluationColumns& columns) {
  const std::string path = folder.MetricsPath();
  const std::string heading = MetricsHeading(columns);
  std::ifstream before(path);
  std::string line;
  std::getline(before, line);
  const bool has_means = line != MetricsHeading({.evaluated_on = columns.evaluated_on});
  const auto comma_count = std::ranges::count(has_means ? heading : line, ',');
  const auto is_row = [&](std::string_view text) {
    return std::ranges::count(text, ',') == comma_count;
  };
  *last = {};
  while (std::getline(before, line) && !before.eof()) {  // a line without its end is torn
    if (const std::optional<MetricsRow> row = ParseStepRow(line)) {
      last->row = row;
    } else if (is_row(line)) {
      last->evaluated_step = ParseNumber<uint64_t>(line.substr(0, line.find(','))).value_or(0);
    }
  }
  std::string row;
  PANDO_ASSIGN_OR_RETURN(RowFile file, RowFile::Reopen(path, is_row, &row));
  MetricsFile metrics(std::move(file), has_means ? columns.means.size() : 0);
  if (row.empty()) (void)metrics.rows_.Append(heading + "\n");  // or it is held
  return metrics;
}

Status MetricsFile::Append(const MetricsRow& row) {
  std::string text = fmt::format("{}", row.step);
  for (const MetricsColumn& column : kMetricsColumns)
    text += Cell(row.*column.value, column.format);
  return rows_.Append(text + std::string(2 + mean_count_, ',') + "\n");
}

Status MetricsFile::Append(const EvaluationRow& row) {
  std::string text = fmt::format("{}", row.step);
  for (const MetricsColumn& column : kMetricsColumns) {
    text += ",";
    if (column.value == &MetricsRow::epoch) text += fmt::format("{:.6g}", row.epoch);
    if (column.value == &MetricsRow::elapsed_seconds)
      text += fmt::format("{:.3f}", row.elapsed_seconds);
  }
  text += Cell(row.test_accuracy) + Cell(row.test_loss);
  for (size_t i = 0; i < mean_count_; ++i) text += Cell(i < row.means.size() ? row.means[i] : NAN);
  return rows_.Append(text + "\n");
}

// ---- events.jsonl -------------------------------------------------------------------------------

namespace {

struct EventTime {
  std::chrono::system_clock::time_point at;
  std::chrono::milliseconds elapsed{0};
};

std::optional<EventTime> ReadEventTime(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("time") || !json.contains("elapsed_ms"))
    return std::nullopt;
  if (!json["time"].is_string() || !json["elapsed_ms"].is_number()) return std::nullopt;
  const auto at = ParseUtcText(json["time"].get<std::string>());
  if (!at) return std::nullopt;
  return EventTime{*at, std::chrono::milliseconds(json["elapsed_ms"].get<int64_t>())};
}

}  // namespace

Result<EventsFile> EventsFile::Create(const RunFolder& folder) {
  PANDO_ASSIGN_OR_RETURN(RowFile file, RowFile::Create(folder.EventsPath()));
  return EventsFile(std::move(file));
}

Result<EventsFile> EventsFile::Reopen(const RunFolder& folder, Gap gap) {
  std::string line;
  const auto is_sound = [](std::string_view text) { return ReadEventTime(text).has_value(); };
  PANDO_ASSIGN_OR_RETURN(RowFile file, RowFile::Reopen(folder.EventsPath(), is_sound, &line));
  EventsFile events(std::move(file));
  const std::optional<EventTime> last = ReadEventTime(line);
  if (!last) return events;
  events.start_ -= last->elapsed;
  const auto since = std::chrono::system_clock::now() - last->at;
  if (gap == Gap::kCounts) {
    events.start_ -= std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::max(since, std::chrono::system_clock::duration(0)));
  }
  return events;
}

uint64_t CountEvents(const RunFolder& folder, std::string_view event) {
  std::ifstream file(folder.EventsPath());
  const std::string mark = fmt::format("\"event\":\"{}\"", event);
  uint64_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find(mark) != std::string::npos;
  return count;
}

Status EventsFile::Append(std::string_view event, const nlohmann::json& details) {
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  nlohmann::ordered_json line;
  line["time"] = UtcText(std::chrono::system_clock::now());
  line["elapsed_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count();
  line["event"] = event;
  line["details"] = details;
  return rows_.Append(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace pando
