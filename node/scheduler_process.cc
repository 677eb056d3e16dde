// Runs `pando scheduler`: the scheduler's core, its endpoint, and its run folder.
#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/clock.h"
#include "common/exit_codes.h"
#include "common/hash.h"
#include "common/output.h"
#include "common/system.h"
#include "data/dataset.h"
#include "job/batch_check.h"
#include "job/job_file.h"
#include "job/run_plan.h"
#include "net/address.h"
#include "net/event_loop.h"
#include "net/view_guard.h"
#include "net/zmq/isolation_signal.h"
#include "node/file_service.h"
#include "node/log.h"
#include "node/patient_journal.h"
#include "node/processes.h"
#include "node/programs/declaration.h"
#include "node/shutdown_signal.h"
#include "node/standby/lead_in_turn.h"
#include "node/standby/leadership.h"
#include "node/standby/standby.h"
#include "node/timeline/process_timeline.h"
#include "node/timeline/run_timeline.h"
#include "plan/external_model.h"
#include "plan/rate_table.h"
#include "run/etcd/etcd_journal.h"
#include "run/output/events_file.h"
#include "run/run_lock.h"
#include "run/run_recorder.h"
#include "run/run_weights.h"
#include "run/snapshot_checker.h"
#include "run/snapshot_folder.h"
#include "run/sqlite_journal.h"
#include "run/stored_journal.h"
#include "scheduler/scheduler.h"

namespace pando {
namespace {

// A thousand members send 4,000 heartbeats per second; to wake up for each costs a tenth of a core.
// So turns get longer with the members. Those of fewer than 100 members have no pause.
constexpr Micros kTurnPerMember = std::chrono::microseconds(10);
constexpr Micros kTurnMin = std::chrono::milliseconds(1);
constexpr Micros kTurnMax = std::chrono::milliseconds(10);
constexpr Micros kWaitingNoteInterval = std::chrono::seconds(10);
// The most bytes of replies that wait for a client that does not read them.
constexpr int64_t kQueuedRepliesBytesMax = 4 << 20;

Result<JobPlan> MakePlan(const Job& job) {
  if (IsExternal(job)) return ExternalPlan(job);
  Job without_cache = job;  // no sample is read here
  without_cache.data_cache.clear();
  PANDO_ASSIGN_OR_RETURN(OpenedJob opened, OpenedJob::Open(without_cache, LogWarning));
  JobPlan plan(job, opened.plan.data, opened.plan.layout);
  PANDO_RETURN_IF_ERROR(CheckMicroBatches(job, opened.model, plan.steps));
  PANDO_RETURN_IF_ERROR(CheckRates(job.schedule, plan.steps.step_count()));
  return plan;
}

// Checks that a journal belongs to this run and plan.
Status CheckState(const SchedulerState& state, const JobPlan& plan, const std::string& path) {
  const uint32_t shard_count = plan.shards.shard_count();
  const bool has_no_view = state.view.id.number == 0;
  bool fits = has_no_view || (state.view.shards.size() == shard_count &&
                              state.view.owners.size() == plan.job.micro_batches);
  for (const SnapshotManifest& manifest : state.snapshots)
    fits = fits && manifest.shards.size() == shard_count;
  if (fits) return Status();
  return InvalidArgument(fmt::format(
      "{} is of another job than the job file: that has {} shards and {} micro-batches, and the "
      "journal others; give the job file of that run",
      path, shard_count, plan.job.micro_batches));
}

// Reads the state that earlier lives left. Waits while the disk is full.
Result<std::optional<SchedulerState>> ReadState(StoredJournal& journal,
                                                const ShutdownSignal& shutdown) {
  bool has_told = false;
  while (true) {
    Result<std::optional<SchedulerState>> state = journal.ReadState();
    const bool may_pass =
        state.status().code() == StatusCode::kNoSpace ||
        (state.status().code() == StatusCode::kUnavailable && !journal.is_fenced());
    if (state.ok() || !may_pass) return state;
    if (!std::exchange(has_told, true))
      spdlog::warn("the scheduler waits for its journal: {}", state.status().message());
    if (!WaitToRetry(shutdown)) return Interrupted(state.status().message());
  }
}

// Nodes reach the store of each of several schedulers at the port after the scheduler's.
Status CheckPorts(const std::string& bound, const std::string& files) {
  PANDO_ASSIGN_OR_RETURN(const Endpoint wanted, EndpointNextTo(bound));
  PANDO_ASSIGN_OR_RETURN(const Endpoint store, ParseEndpoint(files));
  if (store.port == wanted.port) return Status();
  return NoPortForFiles(fmt::format("port {} is in use", wanted.port));
}

// The objects with which one life of the scheduler works; all outlive it.
struct SchedulerParts {
  const SchedulerArgs& args;
  const JobPlan& plan;
  Incarnation incarnation;
  const std::optional<SchedulerState>& state;  // left by earlier lives
  StoredJournal& journal;
  RunRecorder& recorder;
  ShutdownSignal& shutdown;
  ServiceNotice& service;
  Leadership* leadership;  // null: this scheduler has no standbys
};

// SchedulerProcess connects the core with journal, recorder and snapshot folder, and shows what the
// run waits for.
class SchedulerProcess : public RunObserver {
 public:
  explicit SchedulerProcess(const SchedulerParts& parts)
      : args_(parts.args),
        plan_(parts.plan),
        parts_(parts),
        recorder_(parts.recorder),
        schedule_(plan_.job.optimizer, plan_.job.schedule, plan_.steps.step_count()),
        snapshots_(RunFolder::Open(args_.run_dir).SnapshotsPath(),
                   parts.state ? parts.state->snapshots : std::vector<SnapshotManifest>()) {}
  int Run();

  void OnEvent(Micros now, const RunEvent& event) override;
  void OnStepMetrics(Micros now, const StepMetrics& metrics) override;
  void OnEvaluation(Micros now, const EvaluationSummary& summary) override;
  void OnEvaluationsDropped(Micros /*now*/, Version last_good) override {
    DropEvaluations(last_good, &recorder_.summary());
  }
  void OnFault(Micros now, const FaultRecord& fault) override;
  std::optional<SnapshotCheck> OnSnapshotRipe(Micros now,
                                              const SnapshotManifest& manifest) override;
  void OnSnapshot(Micros now, const SnapshotManifest& manifest) override;
  void OnSnapshotDropped(Micros now, const SnapshotManifest& manifest) override;
  void OnSnapshotForgotten(Micros now, const SnapshotRef& snapshot) override;
  Status OnFinalWeights(Micros now, Version version, const SnapshotManifest* stored,
                        const FloatBuffer& flat) override;

 private:
  Status Lead();
  void WatchMembers(Transport& transport);
  Status StartFiles(JobId job, const std::string& bound);
  bool WaitForJournal(Transport& transport, const Status& why, Micros since);
  Scheduler::Options CoreOptions() const;
  JobId FindJobId() const {
    return parts_.state ? parts_.state->job : MakeJobId(plan_.job, parts_.incarnation.value());
  }
  void KeepBestWeights();
  void Watch(Micros now);
  void WatchStandbys();
  // Whether another scheduler may lead the run, as etcd says.
  bool HasLostLead() const { return parts_.leadership != nullptr && parts_.leadership->is_lost(); }
  void WarnOfManifest(const Status& status);
  void AwaitLastFiles();
  double TrainingSeconds(const RunTimes& times);

  const SchedulerArgs& args_;
  const JobPlan& plan_;
  const SchedulerParts& parts_;
  RunRecorder& recorder_;
  const std::unique_ptr<Timeline> timeline_file_ =
      OpenTimeline(plan_.job, RunFolder::Open(args_.run_dir).TimelinePath(), "scheduler",
                   parts_.incarnation.value());
  RunTimeline timeline_{timeline_file_.get(),
                        std::chrono::duration_cast<Micros>(recorder_.start().time_since_epoch())};
  const Schedule schedule_;
  SnapshotFolder snapshots_;
  ShutdownSignal& shutdown_{parts_.shutdown};
  ZmqContext context_{args_.keys, LogWarning};
  IsolationSignal isolation_{context_};
  PatientJournal journal_{parts_.journal, recorder_, shutdown_};
  SnapshotChecker checker_{[folder = snapshots_.path(), job = FindJobId(),
                            &plan = plan_](const SnapshotManifest& manifest) {
    return CheckSnapshot(folder, manifest, job, plan);
  }};
  std::unique_ptr<FileService> files_;  // null: the run folder is shared
  std::unique_ptr<LeaderGate> gate_;    // to the core's transport
  std::unique_ptr<Scheduler> scheduler_;
  struct Gathering {  // of the processes with which the run starts
    Micros since{0};
    Micros note_at{0};
    bool has_timed_out = false;
  };
  Gathering gathering_;
  bool is_waiting_ = false;     // for the journal
  uint32_t trusted_below_ = 0;  // the next id when all members were last trusted
  std::string endpoint_;        // where others reach this process
};

// A fenced scheduler leaves the folder to the one that leads. A scheduler that was asked to stop
// while it waited for its journal has not sent Stop; its supervisor ends the other processes.
int SchedulerProcess::Run() {
  SetFloatEnvironment();
  TakeShortTimeSlices();  // this thread, ZeroMQ's, and those that send
  const Status status = Lead();
  if (parts_.journal.is_fenced() || HasLostLead()) {
    spdlog::error("{}", status.message());
    return kExitFenced;
  }
  if (scheduler_ && scheduler_->is_fenced())
    return recorder_.Conclude(kStatusInterrupted, Status());
  const bool is_over = scheduler_ && scheduler_->is_finished();
  const bool was_interrupted = is_over && scheduler_->stop().reason == StopReason::kInterrupted;
  files_.reset();
  if (is_over && plan_.job.snapshot_best) KeepBestWeights();
  if (is_over && scheduler_->stop().reason == StopReason::kCompleted) snapshots_.OnEnd();
  const int exit_code =
      recorder_.Conclude(was_interrupted ? kStatusInterrupted : kStatusCompleted, status);
  const bool has_lost_member = is_over && scheduler_->has_lost_member();
  return has_lost_member && exit_code == kExitFailed ? kExitMemberLost : exit_code;
}

// The run has ended, so a file that cannot be written does not make it a failure.
void SchedulerProcess::KeepBestWeights() {
  Summary& summary = recorder_.summary();
  const RunFolder folder = RunFolder::Open(args_.run_dir);
  Result<std::optional<Version>> best =
      WriteBestWeights(folder, plan_, summary.evaluations, scheduler_->final_version());
  if (!best.ok()) {
    recorder_.OnEvent("best-failed", "", best.status().message());
    return recorder_.Note("the best weights are not kept: " + best.status().message());
  }
  if (!*best) return;
  summary.best_weights_step = (*best)->value();
  const Version wanted = BestFirst(plan_.job, summary.evaluations).front();
  if (**best == wanted) return;
  const std::string text = fmt::format(
      "the weights of version {}, the best, are not on the disk: version {} is kept as the best",
      wanted.value(), (*best)->value());
  recorder_.OnEvent("best-failed", "", text);
  recorder_.Note(text);
}

// Compares the final weights with the stored snapshot (P33), unless it cannot be read any more.
Status SchedulerProcess::OnFinalWeights(Micros /*now*/, Version version,
                                        const SnapshotManifest* stored, const FloatBuffer& flat) {
  if (stored != nullptr) {
    const Result<std::string> difference =
        FindDifference(snapshots_.path(), *stored, plan_, flat.span());
    if (!difference.ok())
      LogWarning("the final weights are not compared: " + difference.status().message());
    if (difference.ok() && !difference->empty()) return Corrupt(*difference);
  }
  PANDO_RETURN_IF_ERROR(recorder_.OnWeights(version, flat.span()));
  if (parts_.leadership == nullptr || parts_.leadership->AwaitStandbys(std::chrono::seconds(2)))
    return Status();
  return Unavailable("a standby does not have the final weights yet");
}

std::optional<SnapshotCheck> SchedulerProcess::OnSnapshotRipe(Micros /*now*/,
                                                              const SnapshotManifest& manifest) {
  return gate_->AwaitFiles(manifest.snapshot, [&] { return checker_.Check(manifest); });
}

Status SchedulerProcess::Lead() {
  const auto disconnected = [this](Incarnation peer) {
    if (scheduler_ && !is_waiting_) scheduler_->OnDisconnect(SteadyNow(), peer);
  };
  const auto nonsense = [this](Incarnation peer, const std::string& what) {
    if (scheduler_ && !is_waiting_) scheduler_->OnDisconnect(SteadyNow(), peer, what);
  };
  Transport transport(context_, {kSchedulerNode, parts_.incarnation, 0},
                      {.insecure = args_.insecure,
                       .queued_bytes_max = kQueuedRepliesBytesMax,
                       .on_warning = LogWarning,
                       .on_disconnect = disconnected,
                       .on_nonsense = nonsense});
  // A member that dialed the port of an earlier life may have it.
  const bool may_be_dialed = parts_.leadership != nullptr || parts_.state;
  Result<std::string> endpoint =
      may_be_dialed ? BindPatiently(transport, args_.bind, shutdown_) : transport.Bind(args_.bind);
  if (!endpoint.ok()) return BadBind(endpoint.status());
  PANDO_ASSIGN_OR_RETURN(endpoint_, TellEndpoint(args_, *endpoint));
  parts_.service.SendReady("waiting for servers and workers at " + endpoint_);
  WarnOfManifest(snapshots_.WriteMissingManifests());
  Scheduler::Options options = CoreOptions();
  PANDO_RETURN_IF_ERROR(StartFiles(options.job, *endpoint));
  if (files_) options.files_endpoint = files_->endpoint();
  ViewGuard views(transport, ViewKeyPair(context_.keys()));
  options.seal = views.seal();
  if (parts_.leadership != nullptr) options.schedulers = &parts_.leadership->places();
  recorder_.summary().run_id = HexText(options.job.value());
  gate_ = std::make_unique<LeaderGate>(transport, parts_.leadership);
  scheduler_ = std::make_unique<Scheduler>(options, plan_, journal_, *this, *gate_);
  journal_.SetWait(
      [&](const Status& why, Micros since) { return WaitForJournal(transport, why, since); });
  WatchMembers(transport);  // members of earlier lives
  gathering_.since = SteadyNow();
  gathering_.note_at = gathering_.since + kWaitingNoteInterval;
  RunLoop(
      *scheduler_, transport,
      {.local = {{shutdown_.fd(), [this](Micros now) { Watch(now); }},
                 {checker_.fd(), [this](Micros) { checker_.TakeResults(); }},
                 {-1, [&](Micros) { WatchMembers(transport); }},
                 {parts_.leadership == nullptr ? -1 : parts_.leadership->mirror().fd(),
                  [this](Micros) { WatchStandbys(); }},
                 {parts_.leadership == nullptr ? -1 : parts_.leadership->changes_fd(),
                  [](Micros) {}},  // wakes the loop
                 {-1, [this](Micros now) { parts_.service.Feed(now); },
                  parts_.service.feed_interval()}},
       .is_finished =
           [this] { return scheduler_->is_finished() || scheduler_->is_fenced() || HasLostLead(); },
       .turn_min =
           [this] {
             const auto member_count = std::ssize(scheduler_->membership().members().all());
             const Micros pause = std::min(kTurnMax, kTurnPerMember * member_count);
             return pause < kTurnMin ? Micros(0) : pause;
           }});
  parts_.service.SendStopping();
  if (scheduler_->is_fenced()) return scheduler_->journal_status();
  if (HasLostLead())
    return Unavailable("the lease in etcd has ended: another scheduler may lead this run");
  AwaitLastFiles();
  recorder_.summary().generation = scheduler_->view().generation;
  recorder_.summary().verified_micro_batches = scheduler_->verification().agreed_count;
  recorder_.summary().unverified_micro_batches = scheduler_->verification().unverified_count;
  recorder_.speed().OnEnd(TrainingSeconds(scheduler_->Times(SteadyNow())));
  recorder_.summary().evaluation_seconds =
      std::chrono::duration<double>(scheduler_->Times(SteadyNow()).evaluation).count();
  const Stop& stop = scheduler_->stop();
  if (gathering_.has_timed_out) return Unavailable(stop.text);
  return stop.reason == StopReason::kFailed ? Internal(stop.text) : Status();
}

// Trusts newcomers before they are welcomed, and says which schedulers all members know. Members
// given up stay trusted, so they get Refused.
void SchedulerProcess::WatchMembers(Transport& transport) {
  const RunMembers& membership = scheduler_->membership();
  if (parts_.leadership != nullptr) parts_.leadership->NoteMembers(membership.members().all());
  if (std::exchange(trusted_below_, membership.next_node()) == membership.next_node()) return;
  for (const auto& [node, member] : membership.members().all()) {
    const Register& registration = member.registration;
    transport.guard().Trust(member.peer.incarnation, registration.public_key);
    if (files_) files_->Admit(member.peer.incarnation, registration.role, registration.public_key);
  }
}

Status SchedulerProcess::StartFiles(JobId job, const std::string& bound) {
  if (plan_.job.snapshot_store == "folder") return Status();
  PANDO_ASSIGN_OR_RETURN(files_,
                         FileService::Start({.context = context_,
                                             .scheduler = parts_.incarnation,
                                             .job = job,
                                             .folder = RunFolder::Open(args_.run_dir),
                                             .bound = bound,
                                             .plan = plan_,
                                             .insecure = args_.insecure,
                                             .is_fresh = args_.is_resumed || !parts_.state}));
  return parts_.leadership == nullptr ? Status() : CheckPorts(bound, files_->endpoint());
}

// Answers heartbeats and questions while a commit waits; all other messages are repeated (P10).
bool SchedulerProcess::WaitForJournal(Transport& transport, const Status& why, Micros since) {
  const std::array fds{shutdown_.fd()};
  const Micros deadline = SteadyNow() + kJournalRetry;
  const Stall wait{.waiter = "the run",
                   .waited_for = "scheduler",
                   .what = "its journal",
                   .why = why.message() + "; steps go on until they need it",
                   .since = since};
  std::vector<std::string> schedulers;
  if (parts_.leadership != nullptr) schedulers = EndpointsFor(parts_.leadership->places());
  const auto answer = [&](const Envelope& asked, Message reply) {
    gate_->Send({.job = asked.job,
                 .generation = scheduler_->view().generation,
                 .view = scheduler_->view().id,
                 .sender = {kSchedulerNode, parts_.incarnation, 0},
                 .receiver = asked.sender,
                 .message = std::move(reply)});
  };
  is_waiting_ = true;  // members that lose a connection dial again, and leases decide
  pollfd signalled{shutdown_.fd(), POLLIN, 0};
  parts_.service.Feed(SteadyNow());
  while (SteadyNow() < deadline && poll(&signalled, 1, 0) == 0) {
    transport.Wait(deadline, fds);
    Envelope envelope;
    while (SteadyNow() < deadline && transport.Receive(&envelope)) {
      const bool is_member = scheduler_->membership().members().Find(envelope.sender.incarnation);
      if (std::holds_alternative<Heartbeat>(envelope.message) && is_member)
        answer(envelope, HeartbeatAck{schedulers});
      if (std::holds_alternative<Command>(envelope.message))
        answer(envelope, CommandReply{CommandOutcome::kAccepted,
                                      "the scheduler waits for its journal: " + why.message()});
      if (std::holds_alternative<StatusRequest>(envelope.message))
        answer(envelope, StatusReport{scheduler_->StatusJson(SteadyNow(), wait)});
    }
  }
  is_waiting_ = false;
  return signalled.revents == 0;
}

Scheduler::Options SchedulerProcess::CoreOptions() const {
  const auto start = recorder_.start().time_since_epoch();
  std::error_code ignored;  // a missing folder shows when it is written to
  return {.self = {kSchedulerNode, parts_.incarnation, 0},
          .job = FindJobId(),
          .job_toml = WriteJobText(plan_.job),
          .snapshot_dir = std::filesystem::absolute(snapshots_.path(), ignored).string(),
          .started_at = std::chrono::duration_cast<Micros>(start),
          .next_row = recorder_.next_row(),
          .state = parts_.state,
          .is_resumed = args_.is_resumed};
}

// Releases what waited for the standbys, and records what has happened to them.
void SchedulerProcess::WatchStandbys() {
  if (parts_.leadership == nullptr) return;
  parts_.leadership->mirror().Clear();
  gate_->Release();
  for (const auto& [event, text] : parts_.leadership->TakeChanges()) {
    if (event.empty()) continue;
    recorder_.OnEvent(event, "scheduler", text);
    recorder_.Note(text);
  }
}

// Handles signals, and shows what the start of the run waits for.
void SchedulerProcess::Watch(Micros now) {
  if (shutdown_.Take() != 0) scheduler_->End(now, StopReason::kInterrupted, "interrupted");
  if (scheduler_->phase() != Scheduler::Phase::kGathering) return;
  const auto waited = now - gathering_.since;
  if (waited >= std::chrono::milliseconds(plan_.job.start_timeout_ms)) {
    gathering_.has_timed_out = true;
    // With keys, this process cannot know why others have not joined.
    const std::string advice =
        args_.keys.are_none()
            ? ExplainSilence(endpoint_, "start the others, or raise run.start_timeout_ms")
            : "check that the others run and that their folders of keys belong to this run, or "
              "raise run.start_timeout_ms";
    scheduler_->End(
        now, StopReason::kFailed,
        fmt::format("only {} have joined within {} s; {}", scheduler_->membership().MissingText(),
                    waited / std::chrono::seconds(1), advice));
  } else if (now >= gathering_.note_at) {
    recorder_.Note(fmt::format("waiting since {} s; here are {}", waited / std::chrono::seconds(1),
                               scheduler_->membership().MissingText()));
    gathering_.note_at += kWaitingNoteInterval;
  }
}

// Waits while processes of other machines send their timelines, and programs get the final weights.
void SchedulerProcess::AwaitLastFiles() {
  const bool has_weights =
      IsExternal(plan_.job) && scheduler_->stop().reason == StopReason::kCompleted;
  const Result<Endpoint> endpoint = ParseEndpoint(endpoint_);
  const Result<bool> is_local = endpoint.ok() ? IsLocal(*endpoint) : Result<bool>(false);
  const bool is_alone = is_local.ok() && *is_local;
  if (files_ != nullptr && !is_alone && (has_weights || !plan_.job.timeline.empty()))
    files_->AwaitQuiet(shutdown_.fd());
}

double SchedulerProcess::TrainingSeconds(const RunTimes& times) {
  return recorder_.speed().past_seconds() + std::chrono::duration<double>(times.training).count();
}

void SchedulerProcess::OnEvent(Micros now, const RunEvent& event) {
  timeline_.OnEvent(now, event);
  recorder_.OnEvent(event.name, event.node, event.text);
  if (!event.is_notable) return;
  recorder_.Note(event.text);
  parts_.service.SendStatus(event.text);
}

void SchedulerProcess::OnStepMetrics(Micros now, const StepMetrics& metrics) {
  timeline_.OnStep(now, metrics.step);
  const WorkerUse& workers = scheduler_->membership().use();
  recorder_.OnDataStall(static_cast<double>(workers.data_stall_us()) * 1e-6);
  recorder_.OnExposedSync(static_cast<double>(workers.exposed_sync_us()) * 1e-6);
  const GpuUse gpus = SumGpuUse(scheduler_->membership().members());
  recorder_.OnGpuUse(gpus.memory_bytes, gpus.percent);
  const RunTimes times = scheduler_->Times(now);
  recorder_.OnStep(metrics, schedule_.At(metrics.step).lr,
                   {.made = times.made, .seconds = TrainingSeconds(times)});
}

void SchedulerProcess::OnEvaluation(Micros now, const EvaluationSummary& summary) {
  timeline_.OnEvaluation(now, summary.version, EvaluationText(plan_.job, summary));
  recorder_.OnEvaluation(summary);
}

void SchedulerProcess::OnFault(Micros, const FaultRecord& fault) {
  timeline_.OnFault(fault);
  recorder_.OnFault(fault);
}

void SchedulerProcess::OnSnapshot(Micros, const SnapshotManifest& manifest) {
  recorder_.OnSnapshot(manifest.snapshot);
  WarnOfManifest(snapshots_.OnComplete(manifest));
}

// Warns only: the journal has the manifest, and a later life of the scheduler writes it again.
void SchedulerProcess::WarnOfManifest(const Status& status) {
  if (status.ok()) return;
  recorder_.OnEvent("manifest-failed", "", status.message());
  recorder_.Note(status.message());
}

void SchedulerProcess::OnSnapshotDropped(Micros, const SnapshotManifest& manifest) {
  snapshots_.OnDropped(manifest);
  if (!snapshots_.IsComplete(manifest.snapshot)) recorder_.OnSnapshotDropped(manifest.snapshot);
}

void SchedulerProcess::OnSnapshotForgotten(Micros, const SnapshotRef& snapshot) {
  snapshots_.OnForgotten(snapshot);
  recorder_.OnSnapshotDropped(snapshot);
}

Result<std::unique_ptr<StoredJournal>> OpenJournal(const SchedulerArgs& args,
                                                   Incarnation incarnation,
                                                   const Leadership* leadership) {
  std::unique_ptr<StoredJournal> journal;
  if (leadership != nullptr) {
    journal = std::make_unique<EtcdJournal>(args.etcd->options, args.etcd->prefix,
                                            incarnation.value(), leadership->election());
    return journal;
  }
  PANDO_RETURN_IF_ERROR(CheckJournalIsHere(args.run_dir));
  PANDO_ASSIGN_OR_RETURN(
      SqliteJournal file,
      SqliteJournal::Open(RunFolder::Open(args.run_dir).JournalPath(), incarnation.value()));
  journal = std::make_unique<SqliteJournal>(std::move(file));
  return journal;
}

Result<int> LeadDeclaredRun(const SchedulerArgs& args, ShutdownSignal& shutdown,
                            ServiceNotice& service, Leadership* leadership) {
  PANDO_ASSIGN_OR_RETURN(JobPlan plan, MakePlan(args.job));
  const RunFolder folder = RunFolder::Open(args.run_dir);
  PANDO_RETURN_IF_ERROR(folder.KeepIdentity(plan.job, plan.data));
  std::error_code ignored;  // an earlier end's summary, which nodes must not take for this one's
  std::filesystem::remove(folder.SummaryPath(), ignored);
  const Incarnation incarnation = NewIncarnation();
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<StoredJournal> journal,
                         OpenJournal(args, incarnation, leadership));
  PANDO_ASSIGN_OR_RETURN(std::optional<SchedulerState> state, ReadState(*journal, shutdown));
  if (state) PANDO_RETURN_IF_ERROR(CheckState(*state, plan, folder.JournalPath()));
  const auto gap = args.is_resumed ? EventsFile::Gap::kIsLeftOut : EventsFile::Gap::kCounts;
  PANDO_ASSIGN_OR_RETURN(RunRecorder recorder, state
                                                   ? RunRecorder::Reopen(plan, folder, *state, gap)
                                                   : RunRecorder::Create(plan, folder));
  const SchedulerParts parts{args,     plan,     incarnation, state,     *journal,
                             recorder, shutdown, service,     leadership};
  return SchedulerProcess(parts).Run();
}

Result<int> LeadRun(const SchedulerArgs& args, ShutdownSignal& shutdown, ServiceNotice& service,
                    Leadership* leadership) {
  PANDO_RETURN_IF_ERROR(CheckFilesOfScheduler(args.job));
  // Removes keys of an earlier start, with which `pando status` would get no answer.
  std::error_code ignored;
  const RunFolder folder = RunFolder::Open(args.run_dir);
  if (args.keys.are_none() ||
      !std::filesystem::equivalent(args.keys.folder, folder.KeysPath(), ignored)) {
    folder.DropKeys();
    if (!args.keys.are_none()) folder.LinkKeys(args.keys.folder);
  }
  if (!IsExternal(args.job) || IsDeclared(args.job))
    return LeadDeclaredRun(args, shutdown, service, leadership);
  PANDO_ASSIGN_OR_RETURN(const SchedulerArgs declared, AwaitDeclaration(args, shutdown, service));
  return LeadDeclaredRun(declared, shutdown, service, leadership);
}

Result<int> LeadAlone(const SchedulerArgs& args) {
  ShutdownSignal shutdown;
  ServiceNotice service(args.manager);
  Result<RunLock> lock = RunLock::Acquire(args.run_dir);
  if (!lock.ok()) {
    ExitWith(lock.status());
    return kExitFenced;
  }
  if (!args.etcd) return LeadRun(args, shutdown, service, nullptr);
  return LeadInTurn(args, shutdown, service,
                    [&](const SchedulerArgs& leading, Leadership& leadership) {
                      return LeadRun(leading, shutdown, service, &leadership);
                    });
}

}  // namespace

int RunScheduler(const SchedulerArgs& args) { return ExitWith(LeadAlone(args)); }

}  // namespace pando
