#include "cli/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/job_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr std::array kOwnFiles{"job.toml",     "metrics.csv",          "events.jsonl",
                               "summary.json", "final.safetensors",    "summary.json.tmp",
                               "job.toml.tmp", "final.safetensors.tmp"};

// Removes what earlier runs wrote, and nothing else.
void RemoveOwnFiles(const fs::path& folder) {
  std::error_code ignored;  // what cannot be removed shows when it is written
  for (const char* name : kOwnFiles) fs::remove(folder / name, ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "logs", ignored)) {
    if (entry.path().extension() == ".log") fs::remove(entry.path(), ignored);
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

void ResolveRunNames(std::chrono::system_clock::time_point now, Job* job) {
  const bool is_named = !job->name.empty();
  if (!is_named && !job->run_dir.empty()) job->name = fs::path(job->run_dir).filename();
  if (job->name.empty()) {
    job->name = fmt::format("{}-{}-{:%Y%m%d-%H%M%S}", job->model, job->dataset,
                            fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
  }
  if (!job->run_dir.empty()) return;
  job->run_dir = "runs/" + job->name;
  // Two runs of one second, where nobody asked for a name.
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
  fs::create_directories(path + "/logs", error);
  if (error) return FileError("create run folder", path, error.value());
  RemoveOwnFiles(path);
  RunFolder folder(path);
  if (Status s = WriteFileAtomically(folder.JobPath(), WriteJobText(job)); !s.ok()) return s;
  return folder;
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

Result<MetricsFile> MetricsFile::Create(const RunFolder& folder) {
  Result<RowFile> file = RowFile::Create(folder.MetricsPath());
  if (!file.ok()) return file.status();
  Status heading = file->Append("step,epoch,loss,accuracy,lr,images_per_second,elapsed_seconds\n");
  if (!heading.ok()) return heading;
  return MetricsFile(std::move(*file));
}

Status MetricsFile::Append(const MetricsRow& row) {
  return file_.Append(fmt::format("{},{:.6g},{:.9g},{:.9g},{:.7g},{:.6g},{:.3f}\n", row.step,
                                  row.epoch, row.loss, row.accuracy, row.lr, row.images_per_second,
                                  row.elapsed_seconds));
}

Result<EventsFile> EventsFile::Create(const RunFolder& folder) {
  Result<RowFile> file = RowFile::Create(folder.EventsPath());
  if (!file.ok()) return file.status();
  return EventsFile(std::move(*file));
}

Status EventsFile::Append(std::string_view event, const nlohmann::json& details) {
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  nlohmann::ordered_json line;
  line["time"] = UtcText(std::chrono::system_clock::now());
  line["elapsed_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count();
  line["event"] = event;
  line["details"] = details;
  return file_.Append(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace pando
