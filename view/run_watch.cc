#include "view/run_watch.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "common/system.h"
#include "files/json_fields.h"
#include "job/job_file.h"
#include "plan/job_plan.h"
#include "view/run_status.h"

namespace pando {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::chrono::seconds kSilenceMax{2};  // then the page says that no scheduler answers
constexpr std::chrono::seconds kOrderMax{60};
constexpr std::chrono::seconds kFirstWordsMax{10};
constexpr uint64_t kUnknownSamples = uint64_t{1} << 40;  // each step then has the global batch
constexpr size_t kFileBytesMax = 16 << 20;               // for a summary or a job

std::string ReadText(const std::string& path) {
  std::error_code error;
  if (const auto size = fs::file_size(path, error); error || size > kFileBytesMax) return "";
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string LogsFolder(const RunFolder& folder) { return folder.path() + "/logs"; }

std::vector<std::string> FindLogs(const RunFolder& folder) {
  std::vector<std::string> names;
  std::error_code unlisted;  // no logs, if they cannot be listed
  for (const fs::directory_entry& entry : fs::directory_iterator(LogsFolder(folder), unlisted)) {
    if (entry.path().extension() == ".log") names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

// Replaces bytes that are not UTF-8, since other processes wrote the text.
std::string Printable(const std::string& text) {
  const std::string dumped = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(dumped).get<std::string>();
}

}  // namespace

RunWatch::RunWatch(RunSource source, RunMetrics metrics)
    : source_(std::move(source)),
      folder_(RunFolder::Open(source_.run_dir)),
      rows_(folder_.MetricsPath()),
      events_(folder_.EventsPath()),
      job_(folder_.JobPath()),
      identity_(folder_.IdentityPath()),
      summary_(folder_.SummaryPath()),
      logs_(LogsFolder(folder_)),
      metrics_(std::move(metrics)) {}

RunWatch::~RunWatch() {
  stop_.Request();
  if (thread_.joinable()) thread_.join();
}

void RunWatch::Start() {
  ReadFiles();
  thread_ = std::thread([this] { Run(); });
}

Json RunWatch::Hello() const {
  const std::lock_guard lock(mutex_);
  Json hello = shown_.job;
  hello["name"] = source_.name;
  hello["folder"] = source_.run_dir;
  hello["can_control"] = source_.find_keys(KeyRole::kAdmin).ok();
  return hello;
}

std::optional<Json> RunWatch::Update(Mark* mark) const {
  const std::lock_guard lock(mutex_);
  if (mark->changes == shown_.changes) return std::nullopt;
  Json update = Json::object();
  if (mark->is_first || mark->restarts != shown_.restarts) {
    *mark = Mark();
    mark->is_first = false;
    mark->restarts = shown_.restarts;
    update["replace"] = true;
  }
  mark->changes = shown_.changes;
  TellFiles(mark, &update);
  TellStatus(mark, &update);
  return update.empty() ? std::nullopt : std::optional(std::move(update));
}

void RunWatch::TellFiles(Mark* mark, Json* update) const {
  shown_.history.Tell(&mark->history, update);
  Json faults = shown_.faults.Since(std::exchange(mark->fault_changes, shown_.faults.changes()));
  if (!faults.empty()) (*update)["faults"] = std::move(faults);
  if (std::exchange(mark->file_changes, shown_.file_changes) == shown_.file_changes) return;
  (*update)["summary"] = shown_.summary;
  (*update)["logs"] = shown_.logs;
}

void RunWatch::TellStatus(Mark* mark, Json* update) const {
  const auto before = std::exchange(mark->status, shown_.status);
  const bool is_new_error =
      std::exchange(mark->status_error, shown_.status_error) != shown_.status_error;
  if (!shown_.status) {
    if (before || is_new_error || update->contains("replace")) (*update)["status"] = nullptr;
    if (is_new_error) (*update)["status_error"] = shown_.status_error;
  } else if (before != shown_.status) {
    Json patch = before ? MergePatch(*before, *shown_.status) : *shown_.status;
    if (!patch.empty()) (*update)["status"] = std::move(patch);
  }
  Json strips = shown_.strips.Since(std::exchange(mark->strips, shown_.strips.last_look()));
  if (!strips.empty()) (*update)["strips"] = std::move(strips);
}

Result<std::string> RunWatch::Order(const Command& command) {
  Result<Keys> keys = source_.find_keys(KeyRole::kAdmin);
  if (!keys.ok()) {
    return InvalidArgument(
        "this viewer has no admin key: start pando view with --keys FOLDER "
        "that holds it; " +
        keys.status().message());
  }
  const std::string endpoint = FindEndpoint();
  if (endpoint.empty()) return Unavailable("the run has ended");
  ZmqContext context(*std::move(keys));
  return RequestCommand(context, endpoint, command,
                        {.answer_max = kFirstWordsMax,
                         .done_max = kOrderMax,
                         .after_silence = "is the scheduler being restarted?",
                         .after_slowness = "look at its events"},
                        [](const std::string&) {});
}

std::optional<std::string> RunWatch::ReadLog(std::string_view process) const {
  const std::vector<std::string> logs = FindLogs(folder_);
  if (std::ranges::find(logs, process) == logs.end()) return std::nullopt;
  std::ifstream file(folder_.LogPath(process), std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - static_cast<std::streamoff>(kLogBytesMax)));
  std::string text(kLogBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return Printable(text);
}

void RunWatch::Run() {
  while (!stop_.is_requested()) {
    const Micros next = SteadyNow() + kLookInterval;
    AskStatus(next);
    ReadFiles();
  }
}

void RunWatch::ReadFiles() {
  if (source_.run_dir.empty()) return;
  const bool has_new_identity = identity_.HasChanged();  // identity.toml has the number of samples
  if (job_.HasChanged() || has_new_identity) ReadJob();
  const auto restart = [&] {
    shown_.history = {};
    shown_.faults = {};
    ++shown_.restarts;
    metrics_.OnRestart();
  };
  {
    const std::lock_guard lock(mutex_);
    rows_.Read(restart, [&](std::string_view text) {
      ++shown_.changes;
      const CsvRow row = ParseCsvRow(text, shown_.history.names().logged.size());
      shown_.history.Add(row);
      metrics_.OnRow(row, shown_.history.names().logged, steps_);
    });
    events_.Read([] {},
                 [&](std::string_view text) {
                   AddEvent(Json::parse(text, nullptr, /*allow_exceptions=*/false));
                 });
  }
  if (summary_.HasChanged()) ReadSummary();
  if (logs_.HasChanged()) ReadLogNames();
}

void RunWatch::ReadJob() {
  const std::string text = ReadText(folder_.JobPath());
  const Result<Job> job = ParseJobText(text, folder_.JobPath());
  const std::lock_guard lock(mutex_);
  shown_.job["job"] = text;
  if (!job.ok()) return;
  steps_ = JobPlan(*job, {.train_samples = ReadTrainSamples(folder_).value_or(kUnknownSamples)},
                   TensorLayout({MetricTensorSpec()}))
               .steps;
  shown_.job["model"] = job->model;
  shown_.job["dataset"] = job->dataset;
  shown_.job["evaluated_on"] = job->evaluated_on();
}

void RunWatch::ReadSummary() {
  Json summary = Json::parse(ReadText(folder_.SummaryPath()), nullptr, false);
  if (!summary.is_object()) summary = Json();
  const std::lock_guard lock(mutex_);
  if (summary == shown_.summary) return;
  ++shown_.changes;
  ++shown_.file_changes;
  metrics_.OnEnd(!summary.is_null());
  if (!summary.is_null()) {
    for (const Json& fault : summary.value("faults", Json())) ReadFault(fault);
  }
  shown_.summary = std::move(summary);
}

void RunWatch::ReadLogNames() {
  std::vector<std::string> logs = FindLogs(folder_);
  const std::lock_guard lock(mutex_);
  if (logs == shown_.logs) return;
  ++shown_.changes;
  ++shown_.file_changes;
  shown_.logs = std::move(logs);
}

void RunWatch::AddEvent(Json event) {
  if (!event.is_object()) return;
  ++shown_.changes;
  metrics_.OnEvent(event);
  if (event.value("event", Json()) == "fault") return ReadFault(event.value("details", Json()));
  shown_.history.AddEvent(std::move(event));
}

void RunWatch::ReadFault(const Json& fault) {
  FaultRecord record;
  if (FromJson(fault, &record, Missing::kKept).ok()) AddFault(record);
}

void RunWatch::AddFault(const FaultRecord& fault) { metrics_.OnFault(shown_.faults.Add(fault)); }

std::string RunWatch::FindEndpoint() const {
  if (source_.run_dir.empty()) return source_.endpoint;
  {
    const std::lock_guard lock(mutex_);
    if (!shown_.summary.is_null()) return "";
  }
  const Result<std::string> endpoint = folder_.ReadEndpoint();
  return endpoint.ok() ? *endpoint : "";
}

void RunWatch::AskStatus(Micros deadline) {
  if (const std::string endpoint = FindEndpoint(); endpoint != endpoint_) {
    line_.reset();
    endpoint_ = endpoint;
  }
  // Keys are found once the endpoint is known: a run makes its keys before.
  if (!line_ && !endpoint_.empty()) {
    if (const Result<Keys> keys = source_.find_keys(KeyRole::kReader); keys.ok())
      line_.emplace(*keys, endpoint_);
  }
  if (!line_) {
    pollfd stop{.fd = stop_.fd(), .events = POLLIN, .revents = 0};
    poll(&stop, 1, static_cast<int>(kLookInterval.count()));
  } else if (const auto text = line_->Ask(deadline, stop_.fd())) {
    TakeStatus(*text);
  }
  if (line_ && line_->silence() < kSilenceMax) return;
  const std::lock_guard lock(mutex_);
  std::string error = endpoint_.empty() ? "" : fmt::format("no scheduler answers at {}", endpoint_);
  if (shown_.status || error != shown_.status_error) ++shown_.changes;
  shown_.status.reset();
  shown_.status_error = std::move(error);
  metrics_.OnNoStatus();
}

void RunWatch::TakeStatus(std::string_view text) {
  const Result<RunStatus> status = ParseStatus(text);
  if (!status.ok()) return;
  auto page = std::make_shared<const Json>(PageStatus(*status));
  const std::lock_guard lock(mutex_);
  ++shown_.changes;
  metrics_.OnStatus(*status);
  shown_.strips.Look(std::chrono::duration<double>(SteadyNow() - start_).count(), status->nodes);
  for (const FaultRecord& fault : status->faults) AddFault(fault);
  shown_.status = std::move(page);
  shown_.status_error.clear();
}

}  // namespace pando
