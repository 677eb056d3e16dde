#include "run/run_recorder.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <utility>

#include "common/exit_codes.h"
#include "common/output.h"
#include "files/json_fields.h"
#include "plan/external_model.h"
#include "run/run_weights.h"

namespace pando {
namespace {

constexpr size_t kBarWidthMax = 24;
constexpr size_t kBarWidthMin = 6;
constexpr size_t kColumnsUnknown = 120;

std::string Bar(const ProgressState& state, size_t width) {
  const double share = state.step_count == 0 ? 0
                                             : static_cast<double>(state.step) /
                                                   static_cast<double>(state.step_count);
  const auto filled = static_cast<size_t>(share * static_cast<double>(width));
  std::string bar;
  for (size_t i = 0; i < width; ++i) bar += i < filled ? "━" : "╌";
  return bar;
}

bool StartsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

// Counts the text's characters of UTF-8. Each is one column wide here.
size_t Columns(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), StartsCharacter));
}

std::string Cut(const std::string& text, size_t columns) {
  std::string cut;
  size_t count = 0;
  for (char byte : text) {
    if (StartsCharacter(byte) && ++count > columns) break;
    cut += byte;
  }
  return cut;
}

size_t TerminalColumns(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kColumnsUnknown;
}

// Returns for example "31,200".
std::string Grouped(double value) {
  std::string digits = fmt::format("{:.0f}", std::max(value, 0.0));
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string DurationText(std::chrono::seconds duration) {
  const auto s = duration.count();
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

// Estimates the time left at the pace since the first update.
std::chrono::seconds TimeLeft(const ProgressState& first, const ProgressState& state,
                              std::chrono::duration<double> elapsed) {
  const uint64_t done = state.step - std::min(first.step, state.step);
  const uint64_t left = state.step_count - std::min(state.step, state.step_count);
  if (done == 0) return std::chrono::seconds(0);
  const double seconds = elapsed.count() / static_cast<double>(done) * static_cast<double>(left);
  return std::chrono::seconds(static_cast<int64_t>(seconds + 0.5));
}

constexpr const char* kRollbackEvent = "rollback";
constexpr const char* kFaultEvent = "fault";

std::optional<double> KnownOrNone(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

double EpochAfter(uint64_t step_count, const StepPlan& steps) {
  return static_cast<double>(step_count) / static_cast<double>(steps.steps_per_epoch());
}

void TellLostMessages(RunRecorder& recorder) {
  if (const std::string why = TakeLostMessages(); !why.empty())
    recorder.OnEvent("log-lost", "", "messages on standard error are lost: " + why);
}

// An event of a fault. ReadFaults keeps the last one about each fault, by id.
struct FaultEvent {
  std::string event;
  FaultRecord details;
};
void Visit(auto io, FaultEvent& m) { io(PANDO_FIELD(m.event), PANDO_FIELD(m.details)); }

std::map<uint64_t, FaultRecord> ReadFaults(const RunFolder& folder) {
  std::map<uint64_t, FaultRecord> faults;
  std::ifstream file(folder.EventsPath());
  for (std::string line; std::getline(file, line);) {
    FaultEvent read;
    const bool is_read = ReadJson(line, &read, Missing::kKept).ok();
    if (is_read && read.event == kFaultEvent) faults[read.details.id] = read.details;
  }
  return faults;
}

}  // namespace

std::string ProgressText(const ProgressState& state, std::chrono::seconds left, bool has_epoch) {
  std::string text = fmt::format("step {}/{}", state.step, state.step_count);
  if (has_epoch) text += fmt::format(" · epoch {:.2f}", state.epoch);
  if (!std::isnan(state.loss)) text += fmt::format(" · loss {:.4f}", state.loss);
  if (!std::isnan(state.accuracy))
    text += fmt::format(" · accuracy {:.1f} %", 100 * state.accuracy);
  text += fmt::format(" · {} images/s", Grouped(state.images_per_second));
  if (state.exposed_sync_ms > 0)
    text += fmt::format(" · exposed sync {:.1f} ms", state.exposed_sync_ms);
  if (state.step < state.step_count && left.count() > 0) {
    text += fmt::format(" · {} left", DurationText(left));
  }
  return text;
}

std::string ProgressBarText(const ProgressState& state, std::chrono::seconds left, size_t columns) {
  std::string text;
  for (bool has_epoch : {true, false}) {
    text = ProgressText(state, left, has_epoch);
    const size_t used = Columns(text) + 1;
    if (used + kBarWidthMin > columns) continue;
    return Bar(state, std::min(kBarWidthMax, columns - used)) + " " + text;
  }
  return Cut(text, columns);
}

ProgressLine::ProgressLine() : ProgressLine(STDERR_FILENO, isatty(STDERR_FILENO) == 1) {}

ProgressLine::ProgressLine(int fd, bool is_terminal) : fd_(fd), is_terminal_(is_terminal) {}

void ProgressLine::Update(const ProgressState& state, TimePoint now) {
  if (!is_started_) {
    is_started_ = true;
    first_state_ = state;
    start_ = now;
    drawn_at_ = now;
  }
  state_ = state;
  updated_at_ = now;
  if (now - drawn_at_ >= (is_terminal_ ? kTerminalInterval : kPlainInterval)) Draw(now);
}

void ProgressLine::Draw(TimePoint now) {
  const std::chrono::seconds left = TimeLeft(first_state_, state_, now - start_);
  if (is_terminal_) {
    Write("\r\033[K" + ProgressBarText(state_, left, TerminalColumns(fd_)));
  } else {
    Write(ProgressText(state_, left) + "\n");
  }
  is_bar_shown_ = is_terminal_;
  drawn_state_ = state_;
  drawn_at_ = now;
}

void ProgressLine::Note(std::string_view text) {
  Write(fmt::format("{}{}\n", is_terminal_ ? "\r\033[K" : "", text));
  if (is_bar_shown_) Draw(updated_at_);
}

void ProgressLine::Finish() {
  if (is_started_ && (is_bar_shown_ || drawn_state_.step != state_.step)) Draw(updated_at_);
  if (is_bar_shown_) Write("\n");
  is_bar_shown_ = false;
  is_started_ = false;
}

// A closed or full terminal must not stop the run, so errors are dropped.
void ProgressLine::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd_, text.data(), text.size());
    if (written <= 0) return NoteLostMessage(errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

RunRecorder::RunRecorder(const JobPlan& plan, RunFolder folder, Files files)
    : plan_(&plan),
      folder_(std::move(folder)),
      metrics_(std::move(files.metrics)),
      events_(std::move(files.events)),
      curves_(std::move(files.curves)),
      summary_(MakeSummary(plan)),
      speed_(plan.steps) {
  summary_.run_dir = folder_.path();
}

Result<RunRecorder> RunRecorder::Create(const JobPlan& plan, RunFolder folder) {
  PANDO_ASSIGN_OR_RETURN(MetricsFile metrics,
                         MetricsFile::Create(folder, EvaluationColumns::For(plan.job)));
  PANDO_ASSIGN_OR_RETURN(EventsFile events, EventsFile::Create(folder));
  PANDO_ASSIGN_OR_RETURN(TensorBoardFile curves, TensorBoardFile::Create(folder, plan.job));
  return RunRecorder(plan, std::move(folder),
                     {std::move(metrics), std::move(events), std::move(curves)});
}

Result<RunRecorder> RunRecorder::Reopen(const JobPlan& plan, RunFolder folder,
                                        const SchedulerState& state, EventsFile::Gap gap) {
  MetricsFile::Last last;
  PANDO_ASSIGN_OR_RETURN(MetricsFile metrics,
                         MetricsFile::Reopen(folder, &last, EvaluationColumns::For(plan.job)));
  PANDO_ASSIGN_OR_RETURN(EventsFile events, EventsFile::Reopen(folder, gap));
  PANDO_ASSIGN_OR_RETURN(TensorBoardFile curves, TensorBoardFile::Create(folder, plan.job));
  RunRecorder recorder(plan, std::move(folder),
                       {std::move(metrics), std::move(events), std::move(curves)});
  recorder.TakeOver(state, last);
  return recorder;
}

// Fills in the summary as an earlier life would, and writes the rows that it could not write.
void RunRecorder::TakeOver(const SchedulerState& state, const MetricsFile::Last& last) {
  const std::optional<MetricsRow>& last_row = last.row;
  if (last_row) {
    next_row_ = Step(last_row->step);
    summary_.steps = next_row_.value();
    first_step_ = next_row_;
    summary_.epochs = last_row->epoch;
    summary_.train_loss = KnownOrNone(last_row->loss);
    summary_.images_per_second = last_row->images_per_second_mean;
    summary_.wall_seconds = last_row->elapsed_seconds;  // until it concludes
    speed_.TakeOver(*last_row, std::max(0.0, ElapsedSeconds() - last_row->elapsed_seconds));
  }
  for (const EvaluationSummary& evaluation : state.evaluations) {
    AddEvaluation(evaluation, &summary_);
    // The journal also has evaluations that an earlier life could not write.
    if (evaluation.version.value() > last.evaluated_step) AppendEvaluation(evaluation);
  }
  for (const SnapshotManifest& manifest : state.snapshots) OnSnapshot(manifest.snapshot);
  TakeOverFaults(state.faults);
  summary_.generation = state.view.generation;
  summary_.rollbacks = CountEvents(folder_, kRollbackEvent);
  if (!state.is_completed) return;
  EndWith(StopVersion(plan_->job, state.evaluations).value_or(plan_->steps.final_version()));
  Result<FloatBuffer> weights = ReadWeights(folder_.WeightsPath(), plan_->layout);
  if (weights.ok()) summary_.weights_hash = WeightsHash(plan_->layout, weights->span());
  weights_status_ = weights.status();
}

// Writes faults from the journal that an earlier life could not write.
void RunRecorder::TakeOverFaults(const std::vector<FaultRecord>& faults) {
  std::map<uint64_t, FaultRecord> told = ReadFaults(folder_);
  for (const FaultRecord& fault : faults) {
    summary_.faults.push_back(fault);
    summary_.fault_count = fault.id;
    if (told[fault.id] != fault) Heed(events_.Append(kFaultEvent, ToJson(fault)));
  }
}

double RunRecorder::ElapsedSeconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start()).count();
}

// Prints a note when rows begin to be held, and when all held rows are written.
void RunRecorder::Heed(const Status& rows) {
  const bool has_held = metrics_.rows().held_count() + events_.rows().held_count() > 0;
  if (std::exchange(has_held_, has_held) == has_held) return;
  Note(has_held ? fmt::format("{}; rows are held until it can be written", rows.message())
                : "the rows that were held are written");
}

void RunRecorder::OnStep(const StepMetrics& metrics, double lr, const TrainingReach& reach) {
  TellLostMessages(*this);
  const uint64_t done = metrics.step.value() + 1;
  const double epoch = EpochAfter(done, plan_->steps);
  next_row_ = Step(done);
  speed_.OnStep({std::max(reach.made, VersionMadeBy(metrics.step)), reach.seconds},
                summary_.data_stall_seconds, summary_.exposed_sync_seconds);
  summary_.steps = done;
  summary_.epochs = epoch;
  summary_.train_loss = KnownOrNone(metrics.loss);
  progress_.Update({.step = done,
                    .step_count = plan_->steps.step_count(),
                    .epoch = epoch,
                    .loss = metrics.loss,
                    .accuracy = metrics.accuracy,
                    .images_per_second = speed_.images_per_second(),
                    .exposed_sync_ms = 1000 * summary_.exposed_sync_seconds /
                                       static_cast<double>(done - first_step_.value())},
                   std::chrono::steady_clock::now());
  if (done % plan_->job.log_every_steps != 0 && done != plan_->steps.step_count()) return;
  MetricsRow row = speed_.window();
  row.step = done;
  row.epoch = epoch;
  row.loss = metrics.loss;
  row.accuracy = metrics.accuracy;
  row.logged.assign(metrics.logged.begin(), metrics.logged.end());
  row.lr = lr;
  row.images_per_second_mean = speed_.images_per_second();
  row.elapsed_seconds = ElapsedSeconds();
  row.gpu_memory_mb = gpu_memory_mb_;
  row.gpu_percent = gpu_percent_;
  Heed(metrics_.Append(row));
  curves_.Append(row);
}

// Returns the share of the computing threads' training time that was waits for samples.
double RunRecorder::DataStallShare() const {
  const double seconds = speed_.own_seconds();
  const uint64_t own_threads = IsExternal(plan_->job) ? 1 : summary_.threads;
  const uint64_t threads = uint64_t{std::max(1u, summary_.workers)} * own_threads;
  return seconds <= 0 ? 0 : summary_.data_stall_seconds / (seconds * static_cast<double>(threads));
}

void RunRecorder::OnEvaluation(const EvaluationSummary& evaluation) {
  AddEvaluation(evaluation, &summary_);
  if (evaluation.sample_count == 0) return;
  const std::string text = EvaluationText(plan_->job, evaluation);
  if (IsExternal(plan_->job)) summary_.test_sums = text;
  progress_.Note(fmt::format("step {}: {}", evaluation.version.value(), text));
  const EvaluatedValues& evaluated = summary_.evaluated;
  nlohmann::json details{{"step", evaluation.version.value()},
                         {"accuracy", evaluated.Accuracy(evaluation)},
                         {"top5_accuracy", evaluated.Top5Accuracy(evaluation)},
                         {"loss", evaluated.Loss(evaluation)}};
  if (IsExternal(plan_->job)) details["text"] = text;
  Heed(events_.Append("evaluation", details));
  AppendEvaluation(evaluation);
}

void RunRecorder::AppendEvaluation(const EvaluationSummary& evaluation) {
  if (evaluation.sample_count == 0) return;
  const uint64_t step = evaluation.version.value();
  EvaluationRow row{.step = step,
                    .epoch = EpochAfter(step, plan_->steps),
                    .elapsed_seconds = ElapsedSeconds(),
                    .test_accuracy = summary_.evaluated.Accuracy(evaluation),
                    .test_loss = summary_.evaluated.Loss(evaluation)};
  for (const EvaluationColumns::Mean& mean : EvaluationColumns::For(plan_->job).means) {
    const bool is_known = mean.index < evaluation.sums.size();
    row.means.push_back(is_known ? evaluation.sums[mean.index] /
                                       static_cast<double>(evaluation.sample_count)
                                 : NAN);
  }
  Heed(metrics_.Append(row));
  curves_.Append(row);
}

void RunRecorder::OnFault(const FaultRecord& fault) {
  const auto known = std::ranges::find(summary_.faults, fault.id, &FaultRecord::id);
  if (known == summary_.faults.end()) {
    summary_.faults.push_back(fault);
  } else {
    *known = fault;
  }
  if (summary_.faults.size() > kFaultRecordsMax) summary_.faults.erase(summary_.faults.begin());
  summary_.fault_count = std::max(summary_.fault_count, fault.id);
  Heed(events_.Append(kFaultEvent, ToJson(fault)));
  if (fault.recovered_ms < 0 || fault.detected_ms < 0) return;
  progress_.Note(fmt::format("{}: {} at step {}, noticed by {}, {}", fault.target, fault.action,
                             fault.step.value(), fault.detected_by, RecoveryText(fault)));
}

void RunRecorder::OnSnapshot(const SnapshotRef& snapshot) {
  OnSnapshotDropped(snapshot);
  summary_.snapshots.push_back(snapshot);
  std::ranges::sort(summary_.snapshots);
}

void RunRecorder::OnSnapshotDropped(const SnapshotRef& snapshot) {
  std::erase(summary_.snapshots, snapshot);
}

void RunRecorder::OnEvent(const std::string& name, const std::string& node,
                          const std::string& text) {
  if (name == "mixed-kinds") summary_.is_reproducible = false;
  spdlog::debug("{}{}{}: {}", name, node.empty() ? "" : " ", node, text);
  if (name == kRollbackEvent) ++summary_.rollbacks;
  nlohmann::json details{{"text", text}};
  if (!node.empty()) details["node"] = node;
  Heed(events_.Append(name, details));
}

Status RunRecorder::OnWeights(Version version, std::span<const float> flat) {
  const std::pair weights{version, WeightsHash(plan_->layout, flat)};
  if (written_weights_ == weights) return Status();
  summary_.weights_hash = weights.second;
  EndWith(version);
  PANDO_RETURN_IF_ERROR(
      WriteWeights(folder_.WeightsPath(), plan_->layout, flat, WeightsMetadata(*plan_, version)));
  written_weights_ = weights;
  return Status();
}

// Sets the summary's end. Ctrl-C is not an early stop.
void RunRecorder::EndWith(Version version) {
  summary_.steps = version.value();
  summary_.stopped_early = version != plan_->steps.final_version() &&
                           StopVersion(plan_->job, summary_.evaluations) == version;
}

Status RunRecorder::OnBestWeights(Version version, std::span<const float> flat) {
  summary_.best_weights_step = version.value();
  return WriteWeights(folder_.BestWeightsPath(), plan_->layout, flat,
                      WeightsMetadata(*plan_, version));
}

// Counts the rows that a full disk never took.
uint64_t RunRecorder::MissingRows() {
  uint64_t count = 0;
  for (PatientRows* rows : {&metrics_.rows(), &events_.rows()}) {
    Heed(rows->Flush());
    count += rows->held_count() + rows->lost_count();
  }
  return count;
}

int RunRecorder::Conclude(const char* status, const Status& failure) {
  TellLostMessages(*this);
  progress_.Finish();
  const Status& first = failure.ok() ? weights_status_ : failure;
  summary_.status = first.ok() ? status : kStatusFailed;
  summary_.failure = first.ok() ? "" : first.message();
  summary_.wall_seconds = ElapsedSeconds();
  if (!first.ok()) spdlog::error("{}", first.message());
  Heed(events_.Append(summary_.status, {{"text", summary_.failure}}));
  curves_.End(summary_.status == kStatusCompleted);
  summary_.missing_rows = MissingRows();
  if (speed_.has_trained()) summary_.images_per_second = speed_.images_per_second();
  summary_.data_stall_share = DataStallShare();
  if (Status s = folder_.WriteSummary(summary_); !s.ok()) {
    spdlog::error("{}", s.message());
    return kExitFailed;
  }
  if (!first.ok()) return ExitCodeFor(first);
  return summary_.status == kStatusInterrupted ? kExitInterrupted : kExitCompleted;
}

}  // namespace pando
