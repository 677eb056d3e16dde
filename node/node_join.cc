#include "node/node_join.h"

#include <fmt/core.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>
#include <tuple>

#include "common/clock.h"
#include "common/hash.h"
#include "common/mailbox.h"
#include "common/system.h"
#include "job/job_file.h"
#include "net/address.h"
#include "node/leave_notices.h"
#include "run/run_folder.h"

namespace pando {
namespace {

constexpr Micros kWaitingNoteFirst = std::chrono::seconds(1);
constexpr Micros kWaitingNoteInterval = std::chrono::seconds(3);
// Heartbeats without an answer after which the log says that the scheduler is away.
constexpr int kSilentHeartbeats = 8;
// A core that only waits for messages has no deadline that would wake its loop.
constexpr Micros kLookInterval = std::chrono::milliseconds(250);
constexpr Micros kFolderInterval = std::chrono::seconds(1);

Status StoppedBy(int signal) {
  return Interrupted(fmt::format("stopped by {}", signal == SIGINT ? "Ctrl-C" : "a signal"));
}

Result<JoinOutcome> ReadWelcome(const JoinCore& join) {
  PANDO_ASSIGN_OR_RETURN(Job job, ParseJobText(join.welcome()->job_toml, "the scheduler's job"));
  return JoinOutcome(
      Membership{*join.welcome(), join.self(0), join.scheduler(), join.job(), std::move(job)});
}

Status StartSharing(Transport& transport, bool is_required, OnMapped on_mapped) {
  PANDO_ASSIGN_OR_RETURN(std::shared_ptr<SharedPool> pool, SharedPool::Create());
  return transport.ShareMemory(
      {.pool = std::move(pool),
       .is_required = is_required,
       .on_mapped = std::move(on_mapped),
       .on_note = [](const std::string& text) { spdlog::info("{}", text); }});
}

}  // namespace

Register DescribeProcess(Role role, uint32_t wanted_rank) {
  return {.role = role,
          .host = HostName(),
          .process_id = static_cast<uint32_t>(getpid()),
          .wanted_rank = wanted_rank,
          .process_key = ProcessKey()};
}

Result<JoinOutcome> JoinRun(Transport& transport, Incarnation self, const Register& registration,
                            const std::string& scheduler_endpoint, uint32_t timeout_ms,
                            ShutdownRequests& shutdown, const DeclaredRun* declared) {
  Register keyed = registration;
  keyed.public_key = transport.guard().public_key();
  JoinCore join(self, keyed, transport, declared);
  const Micros start = SteadyNow();
  const Micros deadline = start + std::chrono::milliseconds(timeout_ms);
  Micros note_at = start + kWaitingNoteFirst;
  // Reasons are found on other threads, since a lookup of a name may outlast the wait.
  const auto reasons = std::make_shared<Mailbox<std::string>>();
  const Keys& keys = transport.guard().keys();
  const auto look_for_reason = [&] {
    std::thread([reasons, scheduler_endpoint, keys] {
      std::ignore = reasons->Push(ReasonOfSilence(scheduler_endpoint, keys));
    }).detach();
  };
  std::string reason;
  look_for_reason();
  const auto watch = [&](Micros now) {
    shutdown.Take();
    if (now < note_at) return;
    for (std::string& found : reasons->Drain()) reason = found.empty() ? "" : ": " + found;
    spdlog::info("waiting for the scheduler at {} since {} s{}", scheduler_endpoint,
                 (now - start) / std::chrono::seconds(1), reason);
    note_at = now + kWaitingNoteInterval;
    look_for_reason();
  };
  const auto is_over = [&] {
    return join.has_answer() || shutdown.first_signal() != 0 || SteadyNow() >= deadline;
  };
  RunLoop(join, transport, {.local = {{shutdown.fd(), watch}}, .is_finished = is_over});
  if (join.welcome()) return ReadWelcome(join);
  if (join.refused()) {
    const Stop stop{StopReason::kFailed, join.refused()->reason};
    PANDO_ASSIGN_OR_RETURN(MembershipEnd end,
                           ConcludeMembership(stop, join.refused()->kind, /*is_leaving=*/false));
    return JoinOutcome(end);
  }
  if (shutdown.first_signal() != 0) return StoppedBy(shutdown.first_signal());
  return Unavailable(fmt::format("no scheduler answered at {} within {} s; {}", scheduler_endpoint,
                                 timeout_ms / 1000.0,
                                 ExplainSilence(scheduler_endpoint,
                                                "is it running there, and is --join the "
                                                "endpoint that it printed?",
                                                keys)));
}

HeartbeatSender::Options HeartbeatOptions(const Membership& membership,
                                          const std::string& endpoint) {
  return {.self = membership.self,
          .scheduler_endpoint = endpoint,
          .interval = std::chrono::milliseconds(membership.job.heartbeat_ms)};
}

Result<BufferSource> PrepareLines(const Job& job, Transport& transport, OnMapped on_mapped) {
  if (job.encrypt == "control") PANDO_RETURN_IF_ERROR(transport.SpeakInClear());
  const bool is_required = job.transport == "shm";
  if (job.transport != "auto" && !is_required) return BufferSource();
  if (transport.shared_pool() == nullptr) {
    const Status status = StartSharing(transport, is_required, std::move(on_mapped));
    if (!status.ok() && is_required) {
      return Unavailable(
          fmt::format("run.transport is shm: {}; use --transport auto", status.message()));
    }
    if (!status.ok()) spdlog::info("{}; payloads go as bytes", status.message());
    if (!status.ok()) return BufferSource();
  }
  return transport.shared_pool()->source();
}

void TellScheduler(Transport& transport, const Membership& membership, uint32_t generation,
                   const Status& failure) {
  transport.Send({.job = membership.job_id,
                  .generation = generation,
                  .sender = membership.self,
                  .receiver = membership.scheduler,
                  .message = Failure{failure.message(), FailureKind::kMachine}});
}

Result<MembershipEnd> ConcludeMembership(const Stop& stop,
                                         const std::optional<RefusalKind>& refusal,
                                         bool is_leaving) {
  if (refusal == RefusalKind::kNotThisOne)
    return InvalidArgument("the scheduler refused: " + stop.text);
  if (refusal == RefusalKind::kGivenUp && !is_leaving) {
    spdlog::warn("joining again: {}", stop.text);
    return MembershipEnd::kGivenUp;
  }
  if (!refusal) SendLeaveNotice(stop);
  if (!refusal && stop.reason == StopReason::kFailed) {
    spdlog::error("the run has failed: {}", stop.text);
    return MembershipEnd::kFailed;
  }
  spdlog::info("{}: {}", stop.reason == StopReason::kDrained ? "left" : "the run has ended",
               stop.text);
  return MembershipEnd::kStopped;
}

std::string RunDirFor(const Membership& membership) {
  return std::filesystem::path(membership.snapshot_dir).parent_path().string();
}

Status CheckRunFolder(const Membership& membership) {
  const std::string& folder = membership.snapshot_dir;
  const std::string job_path = RunFolder::Open(RunDirFor(membership)).JobPath();
  std::string problem;
  if (access(job_path.c_str(), R_OK) != 0) {
    problem = fmt::format("{}: {}", job_path, std::strerror(errno));
  } else if (access(folder.c_str(), R_OK | W_OK | X_OK) != 0) {
    problem = fmt::format("{}: {}", folder, std::strerror(errno));
  } else {
    return Status();
  }
  const bool may_pass = errno != ENOENT && errno != ENOTDIR && errno != EACCES && errno != EROFS;
  if (may_pass) return Unavailable("cannot reach the run's folder: " + problem);
  return InvalidArgument(fmt::format(
      "with snapshot.store = \"folder\" a server stores snapshots in the run's folder, and "
      "on {} it cannot ({}); share the folder at this path, or start only workers here "
      "(--servers 0)",
      HostName(), problem));
}

LocalEvents NodeWatch::Source() {
  return {shutdown_.fd(), [this](Micros now) { Look(now); }, kLookInterval};
}

void NodeWatch::Look(Micros now) {
  if (!verdict_) LookAtSignals(now);
  if (!verdict_) LookAtScheduler(now);
}

// Any signal concerns only this process; the run continues.
void NodeWatch::LookAtSignals(Micros now) {
  int signal = shutdown_.Take();
  if (signal == 0 && !is_leaving()) signal = shutdown_.first_signal();  // taken by an earlier watch
  for (; signal != 0; signal = shutdown_.Take()) {
    if (is_leaving()) {
      verdict_ = StoppedBy(signal);
      return;
    }
    spdlog::info(
        "leaving: others take over the work first; another signal ends the process at once");
    leaving_since_ = now;
    leave_(now);
  }
}

void NodeWatch::LookAtScheduler(Micros now) {
  const Micros silence = now - heartbeat_.answered_at();
  const Micros heartbeat = std::chrono::milliseconds(membership_.job.heartbeat_ms);
  const Micros silence_max = std::chrono::milliseconds(membership_.job.scheduler_timeout_ms);
  if (const bool was_alone = std::exchange(is_alone_, silence > kSilentHeartbeats * heartbeat);
      was_alone != is_alone_) {
    spdlog::info("{}", is_alone_ ? "the scheduler does not answer; continuing without it"
                                 : "the scheduler answers again");
  }
  if (is_alone_) LookAtFolder(now);
  if (verdict_) return;
  const Micros patience = std::max(kLeavePatience, 2 * heartbeat);
  if (is_leaving() && silence > patience && now - *leaving_since_ > patience) {
    verdict_ = Interrupted(
        fmt::format("stopped by a signal; the scheduler has not answered for {} s, so its work is "
                    "not reassigned yet",
                    silence / std::chrono::seconds(1)));
  } else if (silence > silence_max) {
    verdict_ = Unavailable(
        fmt::format("the scheduler has not answered for {} s: it was killed, or cannot be "
                    "reached any more; look at its log",
                    silence_max / std::chrono::seconds(1)));
  }
}

// The scheduler writes the summary when the run ends, and removes it when the run goes on.
void NodeWatch::LookAtFolder(Micros now) {
  if (folder_look_ && folder_look_->is_done) {
    stop_ = folder_look_->end;
    folder_look_.reset();
    if (stop_) verdict_ = ConcludeMembership(*stop_, std::nullopt, /*is_leaving=*/false);
  } else if (!folder_look_ && now >= folder_at_) {
    folder_at_ = now + kFolderInterval;
    folder_look_ = std::make_shared<FolderLook>();
    std::thread([look = folder_look_, run_dir = RunDirFor(membership_),
                 run_id = HexText(membership_.job_id.value())] {
      Read(run_dir, run_id, *look);
    }).detach();
  }
}

void NodeWatch::Read(const std::string& run_dir, const std::string& run_id, FolderLook& look) {
  const Result<Summary> summary = RunFolder::Open(run_dir).ReadSummary();
  if (summary.ok() && summary->run_id == run_id) {
    const StopReason reason = summary->status == kStatusCompleted ? StopReason::kCompleted
                              : summary->status == kStatusFailed  ? StopReason::kFailed
                                                                  : StopReason::kInterrupted;
    look.end = Stop{reason, fmt::format("{}, as {} says{}{}", summary->status, run_dir,
                                        summary->failure.empty() ? "" : ": ", summary->failure)};
  }
  look.is_done = true;
}

}  // namespace pando
