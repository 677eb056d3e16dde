// Runs `pando train` and `pando resume`: the processes of a run on one machine.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/atomic_file.h"
#include "common/clock.h"
#include "common/endpoint.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "common/system.h"
#include "files/temporary_folder.h"
#include "job/device_choice.h"
#include "job/job_file.h"
#include "job/run_plan.h"
#include "node/fleet/fleet.h"
#include "node/processes.h"
#include "node/programs/scripts.h"
#include "plan/external_model.h"
#include "run/output/events_file.h"
#include "run/run_recorder.h"
#include "run/sqlite_journal.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

// The time from the request to stop until the remaining processes are killed: about a second.
constexpr std::chrono::milliseconds kStopGrace{800};
// A scheduler whose run has begun stores a snapshot first: LastSnapshot::kPatience, and some more.
constexpr std::chrono::milliseconds kSnapshotGrace{10'000};
// The time for the scheduler to end a run that all programs have left.
constexpr std::chrono::seconds kEndPatience{10};
// The time for servers and workers to leave after the scheduler has ended the run.
constexpr std::chrono::milliseconds kLeaveGrace{2000};

Status CheckSocketPath(const std::string& endpoint) {
  if (ParseEndpoint(endpoint).ok()) return Status();
  return InvalidArgument(
      fmt::format("the temporary folder's path is too long for sockets ('{}'); set TMPDIR to a "
                  "shorter one, or use --transport tcp",
                  endpoint));
}

// Returns keys that keep other users of this machine out. Unix sockets need none, since they accept
// only this user's processes.
Result<Keys> KeysOfRun(const LocalRunArgs& args, const RunFolder& run_folder) {
  const Job& job = args.job;
  const bool are_given = !args.keys_folder.empty();
  if (are_given) PANDO_RETURN_IF_ERROR(CheckKeysFit(job));
  const bool needs_none =
      job.strategy == Strategy::kAllreduce || job.transport == "ipc" || job.encrypt == "none";
  if (!are_given && needs_none) return Keys();
  const std::string folder = are_given ? args.keys_folder : run_folder.KeysPath();
  if (std::error_code error; !are_given && !std::filesystem::exists(folder, error))
    PANDO_RETURN_IF_ERROR(MakeKeys(folder));
  std::error_code error;  // programs may change their folder
  const std::string whole = std::filesystem::absolute(folder, error).string();
  return ReadSchedulerKeys(error ? folder : whole);
}

constexpr Micros kChaosPollInterval = std::chrono::milliseconds(10);

// Returns `offset` after `since`, on the clock with which we wait for the processes.
Clock::time_point ToDeadline(Micros since, Micros offset) {
  return offset == kNever ? Clock::time_point::max() : Clock::time_point(since + offset);
}

// The chaos of all lives of a group: a fault that is not due in one life may come in the next. Time
// between lives does not count, because otherwise all faults of that time would come at once.
struct RunChaos {
  ChaosSchedule schedule;
  Micros past{0};  // the time of earlier lives
};

// LocalRun runs and owns the processes of one life. Threads: its own and the link's.
class LocalRun {
 public:
  LocalRun(const LocalRunArgs& args, RunChaos& chaos)
      : args_(args),
        chaos_(chaos),
        fleet_(args, IsGroup() ? Fleet::Kind::kGroup : Fleet::Kind::kRun,
               [this](const ProcessExit& exit, AfterExit next) { OnExit(exit, next); }) {}
  int Run();
  // Returns whether a group that had begun ended because a member died, and not on request.
  bool has_lost_member() const;

 private:
  Status StartScheduler();
  Status AwaitEndpoint();
  Status Link();
  Status StartNodes();
  Status StartPrograms();
  Status WriteAttachFile() const;
  ProcessSpec SchedulerSpec(const std::string& bind) const;
  void AwaitEnd();
  void BringChaos();
  void CheckPrograms();
  void Stop();
  void OnExit(const ProcessExit& exit, AfterExit next);
  const ProcessExit* RootCause() const;
  int Conclude();
  int ConcludeFailed(const ProcessExit& root_cause, Summary summary) const;
  int ConcludeCompleted() const;
  Summary SummaryOfFiles() const;
  Result<JobPlan> PlanOfFiles() const;
  int Write(const Summary& summary, int exit_code) const;
  std::string BindEndpoint(const std::string& name) const;
  bool HasCompleted() const { return scheduler_exit_ && scheduler_exit_->is_clean(); }
  bool IsOver() const {
    return supervisor_.root_cause() || !supervisor_.start_status().ok() || failure_ ||
           scheduler_exit_ || lost_worker_ || shutdown_.first_signal();
  }
  bool IsGroup() const { return args_.job.strategy == Strategy::kAllreduce; }

  const LocalRunArgs& args_;
  const RunFolder folder_{RunFolder::Open(args_.job.run_dir)};
  RunChaos& chaos_;
  std::optional<Micros> chaos_since_;  // when its time began
  // The folder of ipc sockets, whose paths have 107 bytes at most; a run folder's may be longer.
  std::optional<TemporaryFolder> sockets_;
  Keys keys_;
  UniqueFd endpoint_pipe_;  // the scheduler writes its endpoint and a newline
  std::string endpoint_;
  std::optional<ProcessExit> scheduler_exit_;  // if no other life follows
  std::optional<Status> failure_;
  std::optional<ProcessExit> lost_worker_;                    // for a group, which ends with it
  Clock::time_point deserted_at_ = Clock::time_point::max();  // no worker is left, none comes back
  Fleet fleet_;
  ShutdownSignal& shutdown_ = fleet_.shutdown();
  Supervisor& supervisor_ = fleet_.supervisor();
  Scripts scripts_{supervisor_, args_.job.run_dir};  // empty if the workers are Pando's own
};

int LocalRun::Run() {
  for (auto phase : {&LocalRun::StartScheduler, &LocalRun::AwaitEndpoint, &LocalRun::Link,
                     &LocalRun::StartNodes}) {
    if (Status s = (this->*phase)(); !s.ok()) failure_ = s;
    if (IsOver()) break;
  }
  AwaitEnd();
  Stop();
  return Conclude();
}

// Only the scheduler knows that a silent member is lost.
bool LocalRun::has_lost_member() const {
  if (!IsGroup() || HasCompleted() || shutdown_.first_signal()) return false;
  const std::optional<ProcessExit>& end = lost_worker_ ? lost_worker_ : scheduler_exit_;
  return end && fleet_.Judge(*end) == AfterExit::kRestartGroup;
}

std::string LocalRun::BindEndpoint(const std::string& name) const {
  if (args_.job.transport == "ipc") return fmt::format("ipc://{}/{}", sockets_->path(), name);
  return "tcp://127.0.0.1:0";
}

Status LocalRun::StartScheduler() {
  PANDO_ASSIGN_OR_RETURN(keys_, KeysOfRun(args_, folder_));
  if (args_.job.transport == "ipc") {
    sockets_.emplace();
    if (sockets_->path().empty()) {
      return InvalidArgument(
          "cannot make a folder for sockets in the temporary folder; use --transport tcp");
    }
    // A server's lanes add "-12" to its name, and the file store adds to the scheduler's.
    PANDO_RETURN_IF_ERROR(CheckSocketPath(BindEndpoint("server-999") + "-255-x"));
  }
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return FileError("open", "a pipe", errno);
  endpoint_pipe_ = UniqueFd(ends[0]);
  const UniqueFd write_end(ends[1]);
  ProcessSpec spec = SchedulerSpec(BindEndpoint(kSchedulerName));
  spec.args.insert(spec.args.end(),
                   {"--endpoint-file", fmt::format("/dev/fd/{}", write_end.get())});
  if (args_.is_resumed) spec.args.push_back("--resume");
  spec.inherited_fd = write_end.get();
  return supervisor_.Start(spec, Role::kScheduler);
}

ProcessSpec LocalRun::SchedulerSpec(const std::string& bind) const {
  ProcessSpec spec{.name = kSchedulerName,
                   .title = kSchedulerName,
                   .args = {"scheduler", folder_.JobPath(), "--bind", bind, "--prepared-run-dir",
                            folder_.path()},
                   .log_path = folder_.LogPath(kSchedulerName),
                   .keeps_stderr = true,
                   .program = args_.program,
                   .variables = KeysVariables(keys_)};
  if (args_.is_verbose) spec.args.push_back("-v");
  return spec;
}

Status LocalRun::AwaitEndpoint() {
  const auto deadline = Clock::now() + std::chrono::milliseconds(args_.job.start_timeout_ms);
  const std::array fds{endpoint_pipe_.get(), shutdown_.fd()};
  fcntl(endpoint_pipe_.get(), F_SETFL, O_NONBLOCK);
  while (!IsOver() && !endpoint_.ends_with('\n')) {
    if (!supervisor_.Wait(deadline, fds)) {
      return Unavailable(fmt::format("the scheduler did not listen within {} ms; its log is {}",
                                     args_.job.start_timeout_ms, folder_.LogPath(kSchedulerName)));
    }
    shutdown_.Take();
    std::array<char, 256> bytes{};
    const ssize_t count = read(endpoint_pipe_.get(), bytes.data(), bytes.size());
    if (count > 0) endpoint_.append(bytes.data(), static_cast<size_t>(count));
  }
  if (!endpoint_.ends_with('\n')) return Status();
  endpoint_.pop_back();
  const Job& job = args_.job;
  const std::string servers = IsGroup() ? "allreduce" : fmt::format("{} servers", job.servers);
  const std::string what = !args_.attach_file.empty() ? "an attached program"
                           : IsExternal(job) ? fmt::format("{}", fmt::join(job.command, " "))
                                             : fmt::format("{} on {}", job.model, job.dataset);
  Say("pando: {} {}, {} workers, {}, in {}; scheduler at {}\n",
      args_.is_resumed ? "resuming" : "training", what, job.workers, servers, folder_.path(),
      endpoint_);
  return args_.attach_file.empty() ? Status() : WriteAttachFile();
}

// The file may be a pipe.
Status LocalRun::WriteAttachFile() const {
  std::ofstream file(args_.attach_file);
  file << endpoint_ << (keys_.are_none() ? "" : " " + keys_.folder) << '\n' << std::flush;
  if (file) return Status();
  return Unavailable(fmt::format("cannot write the endpoint to {}", args_.attach_file));
}

// Later lives of the scheduler listen where the first did, so that the others find them.
Status LocalRun::Link() {
  ProcessSpec spec = SchedulerSpec(endpoint_);
  spec.args.insert(spec.args.end(), {"--endpoint-file", "/dev/null"});
  if (supervisor_.Running().contains(kSchedulerName)) supervisor_.SetSpec(spec);
  return fleet_.Link(endpoint_, args_.chaos.is_empty() ? kNever : kChaosPollInterval, keys_);
}

Status LocalRun::StartNodes() {
  const uint32_t server_count = IsGroup() ? 0 : args_.job.servers;
  for (uint32_t rank = 0; rank < server_count; ++rank) {
    PANDO_RETURN_IF_ERROR(fleet_.Start(Role::kServer, rank,
                                       {"--bind", BindEndpoint(fmt::format("server-{}", rank)),
                                        "--lanes", fmt::format("{}", args_.job.lanes)}));
  }
  if (IsExternal(args_.job)) return StartPrograms();
  PANDO_ASSIGN_OR_RETURN(DeviceChoice choice, ParseDevice("--device", args_.job.device));
  const uint32_t gpu_count = CountGpus(choice);
  for (uint32_t rank = 0; rank < args_.job.workers; ++rank) {
    const std::string device = DeviceOfWorker(choice, gpu_count, rank);
    PANDO_RETURN_IF_ERROR(fleet_.Start(Role::kWorker, rank, {"--device", device}));
  }
  return Status();
}

Status LocalRun::StartPrograms() {
  const uint32_t count = args_.attach_file.empty() ? args_.job.workers : 0;
  if (count > 0 && args_.worker.is_preloaded) PANDO_RETURN_IF_ERROR(fleet_.StartPreloaded());
  scripts_.Show(args_.shown_logs, count);
  for (uint32_t rank = 0; rank < count; ++rank)
    PANDO_RETURN_IF_ERROR(scripts_.Start(fleet_.MemberSpec(Role::kWorker, rank, {})));
  return Status();
}

void LocalRun::AwaitEnd() {
  while (!IsOver()) {
    const auto chaos_at = chaos_since_ ? ToDeadline(*chaos_since_, chaos_.schedule.NextDeadline())
                                       : Clock::time_point::max();
    fleet_.Wait(std::min(chaos_at, deserted_at_));
    BringChaos();
    CheckPrograms();
  }
  if (chaos_since_) chaos_.past = SteadyNow() - *chaos_since_;
}

// Exit code 0 means that a program has left in order. Without any worker the run would wait for
// ever.
void LocalRun::CheckPrograms() {
  if (IsOver() || Clock::now() < deserted_at_) return;
  failure_ = Internal(fmt::format(
      "all {} programs have ended with exit code 0 before the end of the run: does the loop over "
      "run.loader() end early? Their logs are in {}",
      args_.job.workers, folder_.path() + "/logs"));
}

void LocalRun::BringChaos() {
  const ReportedProgress progress = fleet_.progress();
  if (!progress.has_begun || IsOver()) return;
  const Micros now = SteadyNow();
  if (!chaos_since_) chaos_since_ = now - chaos_.past;
  for (const ChaosAct& act :
       chaos_.schedule.Due(now - *chaos_since_, progress.step, supervisor_.Running())) {
    supervisor_.Inject(act);
  }
}

void LocalRun::OnExit(const ProcessExit& exit, AfterExit next) {
  const bool is_scheduler = exit.spec.name == kSchedulerName;
  if (is_scheduler && next != AfterExit::kRestart) scheduler_exit_ = exit;
  scripts_.OnExit(exit, HasCompleted());
  if (scripts_.HaveAllEnded()) deserted_at_ = Clock::now() + kEndPatience;
  if (IsGroup() && !is_scheduler && next != AfterExit::kIgnore && !lost_worker_)
    lost_worker_ = exit;
}

void LocalRun::Stop() {
  const bool has_ended_well =
      scheduler_exit_ && scheduler_exit_->is_clean() && !supervisor_.root_cause();
  supervisor_.Retire();
  if (has_ended_well) {
    supervisor_.AwaitExits(shutdown_, Clock::now() + kLeaveGrace);
    scripts_.AwaitEnds(shutdown_);
  } else {
    // The scheduler tells the others. A direct signal would make them look like the cause.
    if (supervisor_.Running().contains(kSchedulerName)) {
      supervisor_.Signal(kSchedulerName, SIGTERM);
      if (fleet_.progress().has_begun)
        supervisor_.AwaitExits(shutdown_, Clock::now() + kSnapshotGrace, kSchedulerName);
    } else {
      // One signal asks them to hand their work over first; a second one ends them.
      for (const int signal : {SIGINT, SIGTERM}) supervisor_.SignalAll(signal);
    }
    supervisor_.AwaitExits(shutdown_, Clock::now() + kStopGrace);
  }
  supervisor_.KillAll();
  scripts_.Close();
}

// Returns the process that ended the run by its own exit, and not on request.
const ProcessExit* LocalRun::RootCause() const {
  const std::optional<ProcessExit>& first = supervisor_.root_cause();
  if (!first) return nullptr;
  const bool was_interrupted = first->spec.name == kSchedulerName && first->signal == 0 &&
                               first->exit_code == kExitInterrupted;
  return was_interrupted ? nullptr : &*first;
}

// The scheduler has written the summary if it could, but only this process knows the whole end.
int LocalRun::Conclude() {
  Result<Summary> written = folder_.ReadSummary();
  Summary summary = written.ok() ? *written : SummaryOfFiles();
  if (!supervisor_.start_status().ok()) failure_ = supervisor_.start_status();
  // A worker that died after the end lost nothing.
  if (IsGroup() && HasCompleted() && written.ok()) return ConcludeCompleted();
  if (lost_worker_) return ConcludeFailed(*lost_worker_, summary);
  if (const ProcessExit* root_cause = RootCause()) return ConcludeFailed(*root_cause, summary);
  if (failure_) {
    Say("pando: {}\n", failure_->message());
    summary.status = kStatusFailed;
    summary.failure = failure_->message();
    return Write(summary, ExitCodeFor(*failure_));
  }
  if (HasCompleted() && written.ok()) return ConcludeCompleted();
  if (!HasCompleted()) {
    summary.status = kStatusInterrupted;
    return Write(summary, kExitInterrupted);
  }
  summary.failure = fmt::format("the scheduler left no summary: {}", written.status().message());
  return Write(summary, kExitFailed);
}

// A program declares its model after the start, so the folder's job has it.
Result<JobPlan> LocalRun::PlanOfFiles() const {
  if (IsExternal(args_.job)) {
    PANDO_ASSIGN_OR_RETURN(const Job job, ReadJobFile(folder_.JobPath()));
    return ExternalPlan(job);
  }
  PANDO_ASSIGN_OR_RETURN(OpenedJob opened, OpenedJob::Open(args_.job));
  return opened.plan;
}

// A scheduler that was killed wrote rows and a journal, but no summary.
Summary LocalRun::SummaryOfFiles() const {
  const Summary nothing = MakeSummary(args_.job);
  Result<JobPlan> plan = PlanOfFiles();
  if (!plan.ok()) return nothing;
  Result<SqliteJournal> journal =
      SqliteJournal::Open(folder_.JournalPath(), NewIncarnation().value());
  if (!journal.ok()) return nothing;
  Result<std::optional<SchedulerState>> state = journal->ReadState();
  if (!state.ok() || !*state) return nothing;
  Result<RunRecorder> recorder =
      RunRecorder::Reopen(*plan, folder_, **state, EventsFile::Gap::kCounts);
  return recorder.ok() ? recorder->summary() : nothing;
}

int LocalRun::ConcludeFailed(const ProcessExit& root_cause, Summary summary) const {
  const bool is_scheduler = root_cause.spec.name == kSchedulerName;
  const bool has_told = root_cause.kind() == ExitKind::kFailed;
  const bool has_said = is_scheduler && has_told && !summary.failure.empty();
  if (!has_said) Say("\n{}", RootCauseText(root_cause));
  summary.status = kStatusFailed;
  // A failure that the scheduler wrote says more than its exit code. The same holds for a failure
  // that another process told the scheduler before it ended. If a process was killed, the scheduler
  // has the same information as this process.
  if (summary.failure.empty() || !(is_scheduler || has_told)) {
    summary.failure = fmt::format("{}: {}", root_cause.spec.title, ExitText(root_cause));
    if (!is_scheduler && fleet_.Judge(root_cause) == AfterExit::kRestartGroup) {
      summary.failure +=
          "; allreduce cannot go on without it: --group-restarts N starts the group again from its "
          "last snapshot, --strategy ps goes on without it";
    }
  }
  const bool has_code = is_scheduler && root_cause.signal == 0;
  // Another scheduler leads the run, and the folder belongs to it.
  if (has_code && root_cause.exit_code == kExitFenced) return kExitFenced;
  const bool is_of_run = has_code && root_cause.exit_code != kExitMemberLost;
  return Write(summary, is_of_run ? root_cause.exit_code : kExitFailed);
}

// The weights are valid. Chaos that did not happen is a separate error, and so is a failure of a
// script after its loop.
int LocalRun::ConcludeCompleted() const {
  const int exit_code = scripts_.Conclude().value_or(kExitCompleted);
  if (exit_code != kExitCompleted && exit_code != kExitNextRun) return exit_code;
  const std::vector<std::string> unmet = chaos_.schedule.Unmet();
  for (const std::string& entry : unmet) {
    Say("pando: --chaos '{}' never came due: the run had ended before\n", entry);
  }
  return unmet.empty() ? exit_code : kExitFailed;
}

int LocalRun::Write(const Summary& summary, int exit_code) const {
  if (Status s = folder_.WriteSummary(summary); !s.ok()) Say("pando: {}\n", s.message());
  return exit_code;
}

}  // namespace

// Each member has one connection for data and one for heartbeats. To the file store a server has
// two more and a worker one. A file that is being stored takes one more descriptor.
Status CheckFilesOfScheduler(const Job& job) {
  constexpr uint64_t kOwnFiles = 40;
  const uint64_t servers = job.strategy == Strategy::kAllreduce ? 1 : job.servers;
  return CheckFileLimit(kOwnFiles + 3 * job.workers + 5 * servers,
                        fmt::format("a scheduler of {} workers", job.workers));
}

Status CheckKeysFit(const Job& job) {
  if (job.strategy != Strategy::kAllreduce) return Status();
  return InvalidArgument(
      "--strategy allreduce has no keys: gloo neither encrypts nor authenticates; leave --keys and "
      "PANDO_KEYS out, or give --strategy ps");
}

// Restarts a group that has lost a member, as `pando resume` would.
int RunLocal(const LocalRunArgs& args) {
  LocalRunArgs life = args;
  life.log_dir = args.job.run_dir + "/logs";
  life.start_timeout_ms = args.job.start_timeout_ms;
  RunChaos chaos{.schedule = ChaosSchedule(args.chaos)};
  for (uint32_t restarts_left = args.group_restarts;; --restarts_left) {
    LocalRun run(life, chaos);
    const int exit_code = run.Run();
    std::error_code ignored;  // the workers' addresses of the last life
    std::filesystem::remove_all(RunFolder::Open(args.job.run_dir).GroupPath(), ignored);
    if (!run.has_lost_member() || restarts_left == 0) return exit_code;
    if (Result<RunFolder> reopened = RunFolder::Reopen(args.job); !reopened.ok()) {
      Say("pando: {}\n", reopened.status().message());
      return exit_code;
    }
    Say("pando: restarting the group from its last snapshot; {} of {}\n",
        args.group_restarts - restarts_left + 1, args.group_restarts);
    life.is_resumed = true;
  }
}

}  // namespace pando
