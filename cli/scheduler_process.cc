// `pando scheduler`: the scheduler's core, its endpoint, and the run folder it keeps.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <fstream>

#include "cli/exit_codes.h"
#include "cli/job_file.h"
#include "cli/processes.h"
#include "cli/run_recorder.h"
#include "cli/shutdown.h"
#include "common/float_env.h"
#include "models/network.h"
#include "net/clock.h"
#include "net/event_loop.h"
#include "net/incarnation.h"
#include "net/isolation.h"
#include "scheduler/scheduler.h"
#include "scheduler/sqlite_journal.h"
#include "worker/dataset.h"

namespace pando {
namespace {

constexpr Micros kWaitingNoteInterval = std::chrono::seconds(3);

Result<JobPlan> PlanOf(const Job& job) {
  Result<std::unique_ptr<DataSet>> data = OpenDataSet(job);
  if (!data.ok()) return data.status();
  Result<Model> model = Model::Create(job, (*data)->shape(), (*data)->class_count());
  if (!model.ok()) return model.status();
  return JobPlan(job, FactsOf(**data), model->layout());
}

// Joins the core to the recorder and says whom the run waits for.
class SchedulerProcess : public RunObserver {
 public:
  SchedulerProcess(const SchedulerArgs& args, const JobPlan& plan, RunRecorder& recorder)
      : args_(args),
        plan_(plan),
        recorder_(recorder),
        schedule_(plan.job.optimizer, plan.job.schedule, plan.steps.step_count()) {}
  int Run();

  void OnEvent(Micros now, const RunEvent& event) override;
  void OnStepMetrics(Micros now, const StepMetrics& metrics) override;
  void OnEvaluation(Micros now, const EvaluationSummary& summary) override;
  void OnFault(Micros now, const FaultRecord& fault) override;
  void OnSnapshot(Micros now, const SnapshotManifest& manifest) override;
  void OnSnapshotDropped(Micros now, const SnapshotManifest& manifest) override;
  void OnFinalWeights(Micros now, const FloatBuffer& flat) override;

 private:
  Status Lead();
  Status TellEndpoint(const std::string& endpoint) const;
  void Watch(Micros now);
  double ImagesPerSecond(Micros now) const;

  const SchedulerArgs& args_;
  const JobPlan& plan_;
  RunRecorder& recorder_;
  const Schedule schedule_;
  ShutdownSignal shutdown_;
  ZmqContext context_;
  IsolationSignal isolation_{context_};
  std::unique_ptr<Scheduler> scheduler_;
  uint64_t sample_count_ = 0;  // trained on so far
  Micros started_at_{0};
  Micros note_at_{0};
  bool has_timed_out_ = false;
};

int SchedulerProcess::Run() {
  SetFloatEnvironment();
  const Status status = Lead();
  const bool was_interrupted =
      scheduler_ && scheduler_->finished() && scheduler_->stop().reason == StopReason::kInterrupted;
  return recorder_.Conclude(was_interrupted ? kStatusInterrupted : kStatusCompleted, status);
}

Status SchedulerProcess::Lead() {
  const PeerId self{kSchedulerNode, NewIncarnation(), 0};
  const auto warn = [](const std::string& text) { spdlog::warn("{}", text); };
  Transport transport(context_, self, {.insecure = args_.insecure, .on_warning = warn});
  Result<std::string> endpoint = transport.Bind(args_.bind);
  if (!endpoint.ok()) return BadBind(endpoint.status());
  if (Status s = TellEndpoint(*endpoint); !s.ok()) return s;
  TransportOutbox outbox(transport);
  Result<SqliteJournal> journal =
      SqliteJournal::Open(args_.run_dir + "/scheduler.db", self.incarnation.value());
  if (!journal.ok()) return journal.status();
  Result<std::optional<SchedulerState>> state = journal->ReadState();
  if (!state.ok()) return state.status();
  started_at_ = SteadyNow();
  const JobId job = *state ? (*state)->job : MakeJobId(plan_.job, self.incarnation.value());
  scheduler_ = std::make_unique<Scheduler>(Scheduler::Options{.self = self,
                                                              .job = job,
                                                              .job_toml = WriteJobText(plan_.job),
                                                              .started_at = started_at_,
                                                              .state = std::move(*state)},
                                           plan_, *journal, *this, outbox);
  note_at_ = started_at_ + kWaitingNoteInterval;
  RunLoop(*scheduler_, transport,
          {.local = {{shutdown_.fd(), [this](Micros now) { Watch(now); }}},
           .is_finished = [this] { return scheduler_->finished() || scheduler_->fenced(); }});
  if (scheduler_->fenced()) return journal->failure();
  recorder_.summary().images_per_second = ImagesPerSecond(SteadyNow());
  const Stop& stop = scheduler_->stop();
  if (has_timed_out_) return Unavailable(stop.text);
  return stop.reason == StopReason::kFailed ? Internal(stop.text) : Status();
}

Status SchedulerProcess::TellEndpoint(const std::string& endpoint) const {
  spdlog::debug("listening on {}", endpoint);
  if (args_.endpoint_file.empty()) {
    recorder_.Note(
        fmt::format("listening on {}; join with: pando server --join {}", endpoint, endpoint));
    return Status();
  }
  std::ofstream file(args_.endpoint_file);
  file << endpoint << '\n' << std::flush;
  if (file) return Status();
  return Unavailable(fmt::format(
      "cannot write the endpoint to {}; is its folder there and writable?", args_.endpoint_file));
}

// Signals, and whom the start of the run waits for.
void SchedulerProcess::Watch(Micros now) {
  if (shutdown_.Take() != 0) scheduler_->End(now, StopReason::kInterrupted, "interrupted");
  if (scheduler_->phase() != Scheduler::Phase::kGathering) return;
  const auto waited = now - started_at_;
  if (waited >= std::chrono::milliseconds(plan_.job.start_timeout_ms)) {
    has_timed_out_ = true;
    scheduler_->End(now, StopReason::kFailed,
                    fmt::format("only {} have joined within {} s; start the others, or raise "
                                "run.start_timeout_ms",
                                scheduler_->MissingText(), waited / std::chrono::seconds(1)));
  } else if (now >= note_at_) {
    recorder_.Note(fmt::format("waiting since {} s; here are {}", waited / std::chrono::seconds(1),
                               scheduler_->MissingText()));
    note_at_ += kWaitingNoteInterval;
  }
}

double SchedulerProcess::ImagesPerSecond(Micros now) const {
  const double seconds = std::chrono::duration<double>(scheduler_->TrainingTime(now)).count();
  return seconds <= 0 ? 0 : static_cast<double>(sample_count_) / seconds;
}

void SchedulerProcess::OnEvent(Micros, const RunEvent& event) {
  recorder_.OnEvent(event.name, event.node, event.text);
  if (event.is_notable) recorder_.Note(event.text);
}

void SchedulerProcess::OnStepMetrics(Micros now, const StepMetrics& metrics) {
  sample_count_ += plan_.steps.SampleCount(metrics.step);
  recorder_.OnStep(metrics, schedule_.At(metrics.step).lr, ImagesPerSecond(now));
}

void SchedulerProcess::OnEvaluation(Micros, const EvaluationSummary& summary) {
  recorder_.OnEvaluation(summary);
}

void SchedulerProcess::OnFault(Micros, const FaultRecord&) {}
void SchedulerProcess::OnSnapshot(Micros, const SnapshotManifest&) {}
void SchedulerProcess::OnSnapshotDropped(Micros, const SnapshotManifest&) {}

void SchedulerProcess::OnFinalWeights(Micros, const FloatBuffer& flat) {
  recorder_.OnWeights(plan_.steps.final_version(), flat.span());
}

}  // namespace

int RunScheduler(const SchedulerArgs& args) {
  Result<JobPlan> plan = PlanOf(args.job);
  if (!plan.ok()) {
    spdlog::error("{}", plan.status().message());
    return ExitCodeOf(plan.status());
  }
  Result<RunRecorder> recorder = RunRecorder::Create(*plan, RunFolder::Open(args.run_dir));
  if (!recorder.ok()) {
    spdlog::error("{}", recorder.status().message());
    return ExitCodeOf(recorder.status());
  }
  return SchedulerProcess(args, *plan, *recorder).Run();
}

}  // namespace pando
