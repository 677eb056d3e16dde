// RunRecorder writes a run's folder and reports progress: progress line, metrics.csv, events.jsonl,
// TensorBoard's file, final.safetensors, summary.json. The scheduler process and the serial trainer
// use it. Threads: none. Rows that a full disk refuses are held and retried. Rows that the disk
// never takes are counted in the summary, and have no other effect.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "plan/job_plan.h"
#include "proto/messages.h"
#include "run/output/events_file.h"
#include "run/output/metrics_file.h"
#include "run/output/tensorboard_file.h"
#include "run/run_folder.h"
#include "run/summary.h"
#include "run/training_speed.h"
#include "scheduler/journal.h"

namespace pando {

struct ProgressState {
  uint64_t step = 0;  // completed steps
  uint64_t step_count = 0;
  double epoch = 0;     // completed, with the fraction
  double loss = 0;      // NaN: not logged; the same for accuracy
  double accuracy = 0;  // on the training batches, 0 to 1
  double images_per_second = 0;
  double exposed_sync_ms = 0;  // a step's wait for parameters; 0: none
};

// ProgressLine shows the run's progress on standard error: a bar that is redrawn in place on a
// terminal, and a plain line every few seconds elsewhere. Threads: none.
class ProgressLine {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kTerminalInterval{100};
  static constexpr std::chrono::milliseconds kPlainInterval{5000};

  ProgressLine();  // writes to standard error
  // Writes to any descriptor, which the caller keeps open.
  ProgressLine(int fd, bool is_terminal);

  // Takes the state after a step, and draws it if the last drawing is old enough. It is cheap.
  void Update(const ProgressState& state, TimePoint now);
  // Prints a separate line above the bar.
  void Note(std::string_view text);
  // Draws the last state and ends the line. No bar follows until the next Update.
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

// Returns the bar and the text in at most `columns` characters: first the bar shrinks, then the
// epoch is left out, then the bar, then the end of the text.
std::string ProgressBarText(const ProgressState& state, std::chrono::seconds left, size_t columns);

// Example: "step 120/1407 · epoch 0.26 · loss 0.4312 · accuracy 87.9 % · 31,200 images/s · 0:41
// left".
std::string ProgressText(const ProgressState& state, std::chrono::seconds left,
                         bool has_epoch = true);

class RunRecorder {
 public:
  // `plan` outlives the recorder.
  static Result<RunRecorder> Create(const JobPlan& plan, RunFolder folder);
  // Continues the files of an earlier life of the scheduler; `state` is what its journal has.
  static Result<RunRecorder> Reopen(const JobPlan& plan, RunFolder folder,
                                    const SchedulerState& state, EventsFile::Gap gap);
  // Returns when the run began, on the machine's steady clock.
  std::chrono::steady_clock::time_point start() const { return events_.start(); }
  // Returns the first step whose row is not recorded yet.
  Step next_row() const { return next_row_; }
  TrainingSpeed& speed() { return speed_; }

  // Records a step. Call it once per step, ascending.
  void OnStep(const StepMetrics& metrics, double lr, const TrainingReach& reach);
  // Sets how long computing threads have waited for samples in this life. Call it before OnStep.
  void OnDataStall(double seconds) { summary_.data_stall_seconds = seconds; }
  // Sets how long a worker's thread has waited for parameters, on average. Call it before OnStep.
  void OnExposedSync(double seconds) { summary_.exposed_sync_seconds = seconds; }
  // Sets the values of the workers' GPUs for the next rows.
  void OnGpuUse(uint64_t memory_bytes, double percent) {
    gpu_memory_mb_ = static_cast<double>(memory_bytes) / 1e6;
    gpu_percent_ = percent;
  }
  void OnEvaluation(const EvaluationSummary& evaluation);
  // Records a new fault, or more about the known one with its id.
  void OnFault(const FaultRecord& fault);
  void OnSnapshot(const SnapshotRef& snapshot);
  void OnSnapshotDropped(const SnapshotRef& snapshot);
  // Records an event. `node` is for example "worker 1", or empty.
  void OnEvent(const std::string& name, const std::string& node, const std::string& text);
  void Note(const std::string& text) { progress_.Note(text); }
  // Writes final.safetensors: the weights of `version`, a flat vector in the plan's layout. An
  // error says why they could not be written.
  Status OnWeights(Version version, std::span<const float> flat);
  // Writes best.safetensors: the weights with the best test accuracy.
  Status OnBestWeights(Version version, std::span<const float> flat);
  // Makes the recorded rows survive a power cut. The scheduler calls it before a snapshot counts as
  // complete, since a resumed run begins there.
  void SyncRows() { Heed(metrics_.rows().Sync()); }
  // For what only the caller knows (workers, run_id), which it sets here, and for DropEvaluations.
  Summary& summary() { return summary_; }

  // Writes the summary and returns the exit code. `failure` says why the run failed, if it did.
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
  std::pair<Version, std::string> written_weights_;  // of this life, with their hash
  Status weights_status_;  // whether an earlier life's final weights can be read
  bool has_held_ = false;  // whether rows are held
  TrainingSpeed speed_;
  Step first_step_;  // the first step of this life
  double gpu_memory_mb_ = 0;
  double gpu_percent_ = 0;
  Step next_row_;
};

}  // namespace pando
