#include "run/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "job/job_file.h"
#include "models/network_file.h"
#include "run/run_lock.h"
#include "run/snapshot_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr std::array kOwnFiles{"job.toml",
                               "metrics.csv",
                               "events.jsonl",
                               "summary.json",
                               "final.safetensors",
                               "best.safetensors",
                               "scheduler.db",
                               "scheduler.db-wal",
                               "scheduler.db-shm",
                               "summary.json.tmp",
                               "job.toml.tmp",
                               "final.safetensors.tmp",
                               "best.safetensors.tmp"};
constexpr std::string_view kMetricsHeading =
    "step,epoch,loss,accuracy,lr,images_per_second,elapsed_seconds,data_stall_ms,gpu_memory_mb,"
    "gpu_percent,exposed_sync_ms";
constexpr size_t kMetricsColumns = 11;
// Of earlier releases: how many of the columns they had.
constexpr size_t kColumnsWithGpus = 10;
constexpr std::array<size_t, 2> kFewerColumns{8, kColumnsWithGpus};

// The heading of the first `column_count` columns.
std::string_view HeadingOf(size_t column_count) {
  size_t end = 0;
  for (size_t i = 0; i < column_count; ++i) end = kMetricsHeading.find(',', end + 1);
  return kMetricsHeading.substr(0, end);
}

// Of a heading; none if it is not one of ours.
std::optional<size_t> ColumnsOf(std::string_view heading) {
  if (heading == kMetricsHeading) return kMetricsColumns;
  for (size_t count : kFewerColumns) {
    if (heading == HeadingOf(count)) return count;
  }
  return std::nullopt;
}

// Removes what earlier runs wrote, and nothing else.
void RemoveOwnFiles(const fs::path& folder) {
  std::error_code ignored;  // what cannot be removed shows when it is written
  for (const char* name : kOwnFiles) fs::remove(folder / name, ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "logs", ignored)) {
    if (entry.path().extension() == ".log") fs::remove(entry.path(), ignored);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "timeline", ignored)) {
    if (entry.path().extension() == ".bin") fs::remove(entry.path(), ignored);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "snapshots", ignored)) {
    if (SnapshotOfFile(entry.path().filename().string())) fs::remove(entry.path(), ignored);
  }
}

Status CheckFree(const std::string& path, bool is_forced) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return Status();
  if (!fs::is_directory(status)) {
    return AlreadyExists(fmt::format("{} is a file; give a folder with --run-dir", path));
  }
  if (is_forced || fs::is_empty(path, error)) return Status();
  return AlreadyExists(fmt::format(
      "run folder {} exists already; --force overwrites its run, --run-dir takes another", path));
}

}  // namespace

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
  std::error_code ignored;  // a folder that cannot be looked at shows when it is made
  for (int i = 2; !is_named && fs::exists(job->run_dir, ignored); ++i) {
    job->run_dir = fmt::format("runs/{}-{}", job->name, i);
  }
}

Result<RunFolder> RunFolder::Create(const Job& job, bool is_forced) {
  const std::string& path = job.run_dir;
  PANDO_CHECK(!path.empty());
  if (Status s = CheckFree(path, is_forced); !s.ok()) return s;
  std::error_code error;
  RunFolder folder(path);
  fs::create_directories(path + "/logs", error);
  if (!error) fs::create_directories(folder.SnapshotsPath(), error);
  if (error) return FileError("create run folder", path, error.value());
  {
    Result<RunLock> lock = RunLock::Acquire(path);
    if (!lock.ok()) return lock.status();
    RemoveOwnFiles(path);
  }
  if (Status s = WriteFileAtomically(folder.JobPath(), WriteJobText(job)); !s.ok()) return s;
  return folder;
}

Result<RunFolder> RunFolder::Reopen(const Job& job) {
  RunFolder folder(job.run_dir);
  Result<RunLock> lock = RunLock::Acquire(folder.path());
  if (!lock.ok()) return lock.status();
  std::error_code error;
  fs::remove(folder.SummaryPath(), error);
  if (error) return FileError("remove", folder.SummaryPath(), error.value());
  if (Status s = WriteFileAtomically(folder.JobPath(), WriteJobText(job)); !s.ok()) return s;
  return folder;
}

bool RunFolder::HoldsUnfinished(const Job& job) {
  const RunFolder folder(job.run_dir);
  std::error_code ignored;  // a folder that cannot be looked at is none of ours
  if (!fs::exists(folder.JournalPath(), ignored)) return false;
  Result<Job> begun = ReadJobFile(folder.JobPath());
  if (!begun.ok() || JobIdentityText(*begun) != JobIdentityText(job)) return false;
  Result<Summary> summary = folder.ReadSummary();
  return !summary.ok() || summary->status != kStatusCompleted;
}

std::string RunFolder::LogPath(std::string_view process_name) const {
  return fmt::format("{}/logs/{}.log", path_, process_name);
}

Status RunFolder::WriteSummary(const Summary& summary) const {
  return WriteFileAtomically(SummaryPath(), ToJson(summary));
}

Result<Summary> RunFolder::ReadSummary() const {
  Result<std::string> text = ReadTextFile(SummaryPath());
  if (!text.ok()) return text.status();
  return SummaryFromJson(*text, SummaryPath());
}

// ---- metrics.csv --------------------------------------------------------------------------------

namespace {

std::optional<MetricsRow> ParseMetricsRow(std::string_view text) {
  MetricsRow row;
  std::array<double, kMetricsColumns - 1> reals{};
  const char* at = text.data();
  const char* const last = text.data() + text.size();
  std::from_chars_result end = std::from_chars(at, last, row.step);
  const auto may_end_before = [](size_t real) {  // the step is a column too
    return std::ranges::find(kFewerColumns, real + 1) != kFewerColumns.end();
  };
  for (size_t i = 0; i < reals.size() && (end.ptr != last || !may_end_before(i)); ++i) {
    if (end.ec != std::errc{} || end.ptr == last || *end.ptr != ',') return std::nullopt;
    end = std::from_chars(end.ptr + 1, last, reals[i]);
  }
  if (end.ec != std::errc{} || end.ptr != last) return std::nullopt;
  return MetricsRow{.step = row.step,
                    .epoch = reals[0],
                    .loss = reals[1],
                    .accuracy = reals[2],
                    .lr = reals[3],
                    .images_per_second = reals[4],
                    .elapsed_seconds = reals[5],
                    .data_stall_ms = reals[6],
                    .gpu_memory_mb = reals[7],
                    .gpu_percent = reals[8],
                    .exposed_sync_ms = reals[9]};
}

}  // namespace

Result<MetricsFile> MetricsFile::Create(const RunFolder& folder) {
  Result<RowFile> file = RowFile::Create(folder.MetricsPath());
  if (!file.ok()) return file.status();
  MetricsFile metrics(std::move(*file), kMetricsColumns);
  if (Status s = metrics.rows_.Append(fmt::format("{}\n", kMetricsHeading)); !s.ok()) return s;
  return metrics;
}

Result<MetricsFile> MetricsFile::Reopen(const RunFolder& folder, std::optional<MetricsRow>* last) {
  std::string row;
  std::string heading;
  std::getline(std::ifstream(folder.MetricsPath()) >> std::ws, heading);
  const auto is_sound = [](std::string_view text) {
    return ColumnsOf(text) || ParseMetricsRow(text).has_value();
  };
  Result<RowFile> file = RowFile::Reopen(folder.MetricsPath(), is_sound, &row);
  if (!file.ok()) return file.status();
  MetricsFile metrics(std::move(*file), ColumnsOf(heading).value_or(kMetricsColumns));
  if (row.empty()) (void)metrics.rows_.Append(fmt::format("{}\n", kMetricsHeading));  // or held
  *last = ParseMetricsRow(row);
  return metrics;
}

Status MetricsFile::Append(const MetricsRow& row) {
  std::string text = fmt::format("{},{:.6g},{:.9g},{:.9g},{:.7g},{:.6g},{:.3f},{:.3f}", row.step,
                                 row.epoch, row.loss, row.accuracy, row.lr, row.images_per_second,
                                 row.elapsed_seconds, row.data_stall_ms);
  if (column_count_ >= kColumnsWithGpus)
    text += fmt::format(",{:.1f},{:.1f}", row.gpu_memory_mb, row.gpu_percent);
  if (column_count_ >= kMetricsColumns) text += fmt::format(",{:.3f}", row.exposed_sync_ms);
  return rows_.Append(text + "\n");
}

// ---- events.jsonl -------------------------------------------------------------------------------

namespace {

struct EventTime {
  std::chrono::system_clock::time_point at;
  std::chrono::milliseconds elapsed{0};
};

std::optional<EventTime> TimeOfEvent(std::string_view line) {
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
  Result<RowFile> file = RowFile::Create(folder.EventsPath());
  if (!file.ok()) return file.status();
  return EventsFile(std::move(*file));
}

Result<EventsFile> EventsFile::Reopen(const RunFolder& folder, Gap gap) {
  std::string line;
  const auto is_sound = [](std::string_view text) { return TimeOfEvent(text).has_value(); };
  Result<RowFile> file = RowFile::Reopen(folder.EventsPath(), is_sound, &line);
  if (!file.ok()) return file.status();
  EventsFile events(std::move(*file));
  const std::optional<EventTime> last = TimeOfEvent(line);
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
