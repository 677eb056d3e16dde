#include "embed/program_worker.h"

#include <fmt/core.h>
#include <poll.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <tuple>
#include <utility>

#include "common/atomic_file.h"
#include "common/hash.h"
#include "common/system.h"
#include "job/job_file.h"
#include "node/log.h"
#include "node/remote_files.h"
#include "node/timeline/member_timeline.h"
#include "plan/external_model.h"

namespace pando {
namespace {

// Names the first difference, or returns "": "optimizer.lr is 0.1 here, and 0.2 in the run".
std::string FindDifference(const Job& here, const Job& run) {
  if (const std::string tensors = TensorDifference(here, run); !tensors.empty()) return tensors;
  for (const JobKey& key : JobKeys()) {
    if (!IsIdentityKey(key) || key.name == "model.init_hash" || key.name == "model.tensors")
      continue;
    if (key.name == "model.constants" && here.constants != run.constants)
      return ConstantDifference(here, run);
    const std::string ours = JobValueToml(key.get(here)), theirs = JobValueToml(key.get(run));
    if (ours != theirs)
      return fmt::format("{} is {} here, and {} in the run", key.name, ours, theirs);
  }
  return "";
}

}  // namespace

int LeaveRequest::Take() {
  event_.Clear();  // always, because a forked child shares it
  return is_requested_ && !was_taken_.exchange(true) ? kSignal : 0;
}

ProgramWorker::ProgramWorker(Options options) : options_(std::move(options)) {
  thread_ = std::thread([this] { Run(); });
}

ProgramWorker::~ProgramWorker() {
  close_.Request();
  leave_.Request();
  thread_.join();
}

bool ProgramWorker::AwaitJoin(Deadline deadline) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return has_joined_ || ending_; });
}

bool ProgramWorker::has_joined() const {
  std::lock_guard lock(mutex_);
  return has_joined_;
}

const ProgramWorker::Ending* ProgramWorker::ending() const {
  std::lock_guard lock(mutex_);
  return ending_ ? &*ending_ : nullptr;  // it does not change any more
}

bool ProgramWorker::AwaitEnd(Deadline deadline) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return ending_.has_value(); });
}

void ProgramWorker::Conclude(Ending ending) {
  {
    std::lock_guard lock(mutex_);
    ending_ = std::move(ending);
    changed_.notify_all();
  }
  if (computer_) computer_->End();
}

// All objects with descriptors are made, used and dropped on this thread and those that it starts.
// They take none of the program's signals, whose handlers may write to descriptors.
void ProgramWorker::Run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  SeparateFiles(std::array{leave_.fd(), files_.fd(), news_.mailbox().fd(), close_.fd()});
  files_.Start();
  Result<Ending> end = Ending();
  try {
    end = LiveToTheEnd();
  } catch (const std::exception& error) {
    end = Internal(fmt::format("out of memory, or a fault of Pando: {}", error.what()));
  }
  Conclude(end.ok() ? *std::move(end) : Ending{.failure = end.status()});
  // The program may still be in a call that reads parameters.
  pollfd closed{close_.fd(), POLLIN, 0};
  while (!close_.is_requested()) poll(&closed, 1, -1);
  // These objects would otherwise be freed on the program's thread.
  news_.mailbox().Close();
  std::ignore = news_.mailbox().Drain();
  computer_.reset();
  buffers_ = {};
  sum_lines_.reset();
  transport_.reset();
  context_.reset();
}

// Covers all memberships of this process.
Result<ProgramWorker::Ending> ProgramWorker::LiveToTheEnd() {
  SetFloatEnvironment();
  TakeShortTimeSlices();  // this thread, ZeroMQ's, and those that send
  PANDO_ASSIGN_OR_RETURN(Keys keys, FindKeys("", KeyRole::kMember));
  context_ = std::make_unique<ZmqContext>(std::move(keys), LogWarning);
  transport_ = std::make_unique<Transport>(
      *context_, PeerId{kUnknownNode, {}, 0},
      Transport::Options{.insecure = options_.insecure, .on_warning = LogWarning});
  sum_lines_.emplace(*transport_);
  process_.emplace(
      JoiningProcess{.transports = {transport_.get()},
                     .registration = DescribeProcess(Role::kWorker, options_.wanted_rank),
                     .scheduler_endpoint = options_.scheduler,
                     .timeout_ms = options_.start_timeout_ms,
                     .shutdown = leave_,
                     .declared = &options_.declared});
  PANDO_RETURN_IF_ERROR(sum_lines_->ListenForRack(options_.rack, options_.bind, &*process_));
  while (true) {
    is_given_up_ = false;
    PANDO_ASSIGN_OR_RETURN(Ending ending, Live());
    if (!is_given_up_ || close_.is_requested()) return ending;
    sum_lines_->Close();
  }
}

// Covers one incarnation, from its registration to its end.
Result<ProgramWorker::Ending> ProgramWorker::Live() {
  PANDO_ASSIGN_OR_RETURN(const JoinOutcome joined, JoinRun(*process_));
  if (const auto* end = std::get_if<MembershipEnd>(&joined)) {
    is_given_up_ = *end == MembershipEnd::kGivenUp;
    return Ending();
  }
  const auto& membership = std::get<Membership>(joined);
  SetUpLog({.process = fmt::format("worker {}", membership.rank)});
  // The run continues without a program that does not fit it.
  PANDO_RETURN_IF_ERROR(Check(membership));
  if (Status status = Enter(membership); !status.ok()) {
    TellScheduler(*transport_, membership, 0, status);
    return status;
  }
  return Train(membership);
}

Status ProgramWorker::Check(const Membership& membership) const {
  if (!IsExternal(membership.job)) {
    return InvalidArgument(
        fmt::format("the run at {} trains {}, and not a program's model: start it with `pando run`",
                    options_.scheduler, membership.job.model));
  }
  const std::string difference = FindDifference(options_.job, membership.job);
  if (difference.empty()) return Status();
  return InvalidArgument(fmt::format(
      "this program does not declare what the run trains: {}; start the same program with the same "
      "arguments everywhere",
      difference));
}

// The plan belongs to the run, so it is made once.
Status ProgramWorker::Enter(const Membership& membership) {
  PANDO_ASSIGN_OR_RETURN(BufferSource buffers, PrepareLines(membership.job, *transport_));
  if (!computer_) {
    PANDO_ASSIGN_OR_RETURN(JobPlan plan, ExternalPlan(membership.job));
    buffers_ = files_.Wrap(std::move(buffers));
    plan_.emplace(std::move(plan));
    computer_ = std::make_unique<ProgramComputer>(*plan_, buffers_, news_.sink());
    facts_ = Facts{membership, membership.job.init_hash != options_.job.init_hash};
    options_.declared = {};  // the run has its version 0
  }
  std::lock_guard lock(mutex_);
  has_joined_ = true;
  changed_.notify_all();
  return Status();
}

// Copies part by part, since they may be large.
Status ProgramWorker::FetchFinalWeights(const Membership& membership, const std::string& folder) {
  constexpr uint64_t kPartBytes = 4 << 20;
  constexpr const char* kName = "final.safetensors";
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<RunFiles> files,
                         RemoteFiles::Dial({.context = *context_,
                                            .membership = membership,
                                            .lane = FilesLane::kWeights,
                                            .folder = "",
                                            .stop_fd = close_.fd(),
                                            .patience = kLastFilesPatience}));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> from, files->Open(kName));
  PANDO_ASSIGN_OR_RETURN(AtomicFile to, AtomicFile::Create(folder + "/" + kName));
  std::vector<std::byte> part;
  for (uint64_t at = 0; at < from->size(); at += part.size()) {
    part.resize(std::min(kPartBytes, from->size() - at));
    PANDO_RETURN_IF_ERROR(from->Read(at, part));
    PANDO_RETURN_IF_ERROR(to.Write(part));
  }
  return to.Commit();
}

Result<ProgramWorker::Ending> ProgramWorker::Train(const Membership& membership) {
  HeartbeatSender heartbeat(*context_, HeartbeatOptions(membership),
                            {.job = membership.job_id, .scheduler = membership.scheduler});
  PANDO_RETURN_IF_ERROR(heartbeat.Start());
  const MemberTimeline timeline(*context_, membership, Role::kWorker);
  SessionWorker worker({.transport = *transport_,
                        .shutdown = leave_,
                        .heartbeat = heartbeat,
                        .membership = membership,
                        .plan = *plan_,
                        .computer = *computer_,
                        .news = news_,
                        .sum_lines = *sum_lines_,
                        .buffers = buffers_,
                        .ready = {.kind = options_.kind, .probe_hash = Hash64(options_.kind)},
                        .timeline = timeline.get(),
                        .protocol = timeline.OpenTrack("protocol"),
                        .stop = &close_});
  const auto tell = [&](const Session& session, Micros now) {
    computer_->Tidy();
    Heartbeat content = session.CurrentActivity(now);
    computer_->AddTimes(&content);
    heartbeat.Update(MakeHeartbeat(membership.job_id, session, content, *transport_, now));
  };
  const Result<MembershipEnd> end = worker.Run(tell);
  computer_->Forget();
  timeline.Close(close_.fd());
  if (!end.ok()) return end.status();
  is_given_up_ = *end == MembershipEnd::kGivenUp;
  Ending ending{.stop = worker.stop()};
  const bool is_completed = ending.stop && ending.stop->reason == StopReason::kCompleted;
  if (!is_completed || SharesRunFolder(membership)) return ending;
  const auto folder = std::make_shared<const TemporaryFolder>();
  const Status fetched = FetchFinalWeights(membership, folder->path());
  if (fetched.ok()) ending.weights = folder;
  if (!fetched.ok()) spdlog::warn("the final weights are not here: {}", fetched.message());
  return ending;
}

}  // namespace pando
