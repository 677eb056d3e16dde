// RunRecorder keeps the run folder of a run and tells people how it goes: progress line,
// metrics.csv, events.jsonl, TensorBoard's file, final.safetensors, summary.json. Used by the
// scheduler process and the serial trainer. Threads: none. Rows that a full disk does not take are
// held and tried again; those that it never takes are counted in the summary, and cost nothing
// else.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "plan/job_plan.h"
#include "proto/messages.h"
#include "run/run_folder.h"
#include "run/summary.h"
#include "run/tensorboard_file.h"
#include "run/training_speed.h"
#include "scheduler/journal.h"

namespace pando {

struct ProgressState {
  uint64_t step = 0;  // completed
  uint64_t step_count = 0;
  double epoch = 0;     // completed, with its fraction
  double loss = 0;      // not a number: not logged, as accuracy
  double accuracy = 0;  // of the training batches, 0 to 1
  double images_per_second = 0;
  double exposed_sync_ms = 0;  // of a step: what computing waits for parameters; 0: it does not
};

// ProgressLine: how far the run is, on standard error: a bar that is drawn over itself on a
// terminal, a plain line every few seconds elsewhere. Threads: none.
class ProgressLine {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kTerminalInterval{100};
  static constexpr std::chrono::milliseconds kPlainInterval{5000};

  ProgressLine();  // to standard error
  // To any descriptor, which the caller keeps open.
  ProgressLine(int fd, bool is_terminal);

  // Cheap: call it after every step. Draws when the last drawing is old enough.
  void Update(const ProgressState& state, TimePoint now);
  // A separate line above the bar.
  void Note(std::string_view text);
  // Draws the last state and leaves the line. No bar after that until the next Update.
  void Finish();

 private:
  void Draw(TimePoint now);
  void Write(std::string_view text);

  int fd_;
  bool is_terminal_;
  bool is_bar_shown_ = false;
  bool is_started_ = false;
  ProgressState state_;
  ProgressState first_state_;
  ProgressState drawn_state_;
  TimePoint start_{};
  TimePoint drawn_at_{};
  TimePoint updated_at_{};
};

// The bar and the text in at most `columns` characters: the bar shrinks, then the epoch goes, then
// the bar, then the end of the text.
std::string ProgressBarText(const ProgressState& state, std::chrono::seconds left, size_t columns);

// "step 120/1407 · epoch 0.26 · loss 0.4312 · accuracy 87.9 % · 31,200 images/s · 0:41 left".
std::string ProgressText(const ProgressState& state, std::chrono::seconds left,
                         bool has_epoch = true);

class RunRecorder {
 public:
  // `plan` outlives the recorder.
  static Result<RunRecorder> Create(const JobPlan& plan, RunFolder folder);
  // Goes on with what an earlier life of the scheduler recorded; `state` is its journal's.
  static Result<RunRecorder> Reopen(const JobPlan& plan, RunFolder folder,
                                    const SchedulerState& state, EventsFile::Gap gap);
  // When the run began, on the machine's steady clock.
  std::chrono::steady_clock::time_point start() const { return events_.start(); }
  // The first step whose row is not recorded yet.
  Step next_row() const { return next_row_; }
  TrainingSpeed& speed() { return speed_; }

  // Once per step, ascending.
  void OnStep(const StepMetrics& metrics, double lr, const TrainingReach& reach);
  // How long computing threads have waited for samples in this life, all together. Before OnStep.
  void OnDataStall(double seconds) { summary_.data_stall_seconds = seconds; }
  // How long a worker's thread has waited for parameters in this life, on average. Before OnStep.
  void OnExposedSync(double seconds) { summary_.exposed_sync_seconds = seconds; }
  // What the next rows say of the workers' GPUs.
  void OnGpuUse(uint64_t memory_bytes, double percent) {
    gpu_memory_mb_ = static_cast<double>(memory_bytes) / 1e6;
    gpu_percent_ = percent;
  }
  void OnEvaluation(const EvaluationSummary& evaluation);
  // A new fault, or one of which more is known; its id says which.
  void OnFault(const FaultRecord& fault);
  void OnSnapshot(const SnapshotRef& snapshot);
  void OnSnapshotDropped(const SnapshotRef& snapshot);
  // `node`: "worker 1", or empty.
  void OnEvent(const std::string& name, const std::string& node, const std::string& text);
  void Note(const std::string& text) { progress_.Note(text); }
  // The weights of `version`, as a flat vector in the plan's layout.  Returns why they are not in
  // their file.
  Status OnWeights(Version version, std::span<const float> flat);
  // Those of the best test accuracy.
  Status OnBestWeights(Version version, std::span<const float> flat);
  // What was recorded of steps outlives the machine, too: before a snapshot counts as complete,
  // since a resumption begins there.
  void SyncRows() { Heed(metrics_.rows().Sync()); }
  // For what only the caller knows (workers, run_id), and DropEvaluations.
  Summary& summary() { return summary_; }

  // Writes the summary and returns the exit code. `failure`: why the run failed, if it did.
  int Conclude(const char* status, const Status& failure);

 private:
  struct Files {
    MetricsFile metrics;
    EventsFile events;
    TensorBoardFile curves;
  };
  RunRecorder(const JobPlan& plan, RunFolder folder, Files files);
  void TakeOver(const SchedulerState& state, const MetricsFile::Last& last);
  void TakeOverFaults(const std::vector<FaultRecord>& faults);
  void AppendEvaluation(const EvaluationSummary& evaluation);
  void EndWith(Version version);
  void Heed(const Status& rows);
  uint64_t MissingRows();
  double ElapsedSeconds() const;
  double DataStallShare() const;

  const JobPlan* plan_;
  RunFolder folder_;
  MetricsFile metrics_;
  EventsFile events_;
  TensorBoardFile curves_;
  ProgressLine progress_;
  Summary summary_;
  Status weights_status_;  // of an earlier life's final weights
  bool has_held_ = false;  // rows
  TrainingSpeed speed_;
  Step first_step_;  // of this life
  double gpu_memory_mb_ = 0;
  double gpu_percent_ = 0;
  Step next_row_;
};

}  // namespace pando
