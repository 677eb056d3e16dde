#include "node/node_join.h"

#include <fmt/core.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>
#include <tuple>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/exit_codes.h"
#include "common/mailbox.h"
#include "common/system.h"
#include "job/job_file.h"
#include "net/address.h"
#include "node/leave_notices.h"
#include "node/log.h"
#include "run/run_folder.h"

namespace pando {
namespace {

constexpr Micros kWaitingNoteFirst = std::chrono::seconds(1);
constexpr Micros kWaitingNoteInterval = std::chrono::seconds(3);

Result<JoinOutcome> ReadWelcome(const JoinCore& join, JoiningProcess& process) {
  PANDO_ASSIGN_OR_RETURN(Job job, ParseJobText(join.welcome()->job_toml, "the scheduler's job"));
  process.registration.wanted_rank = join.welcome()->rank;
  return JoinOutcome(Membership{*join.welcome(), join.self(0), join.scheduler(), join.job(),
                                std::move(job), process.scheduler_endpoint});
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

// Retries, since the name may be known only after the scheduler's machine has started.
Result<std::string> DefaultBind(const JoiningProcess& process) {
  constexpr int kRetryMs = 500;
  constexpr int kTriesPerNote = 10;
  PANDO_ASSIGN_OR_RETURN(const Endpoint scheduler,
                         ParsePeerEndpoint(SplitEndpoints(process.scheduler_endpoint).front()));
  int tries = 0;
  const Micros deadline = SteadyNow() + std::chrono::milliseconds(process.timeout_ms);
  while (true) {
    const Result<std::string> address = LocalAddressTowards(scheduler);
    if (address.ok()) return fmt::format("tcp://{}:0", Bracketed(*address));
    if (SteadyNow() >= deadline) return Unavailable(address.status().message());
    if (tries++ % kTriesPerNote == 0) spdlog::info("waiting: {}", address.status().message());
    pollfd signalled{process.shutdown.fd(), POLLIN, 0};
    if (poll(&signalled, 1, kRetryMs) != 0) return Interrupted(address.status().message());
  }
}

Result<JoinOutcome> JoinRun(JoiningProcess& process) {
  const std::string& scheduler_endpoint = process.scheduler_endpoint;
  const Incarnation self = NewIncarnation();
  for (size_t i = 0; i < process.transports.size(); ++i) {
    process.transports[i]->SpeakAs({kUnknownNode, self, static_cast<uint16_t>(i)});
    PANDO_RETURN_IF_ERROR(process.transports[i]->Dial({kSchedulerNode, {}, 0}, scheduler_endpoint));
  }
  Transport& transport = *process.transports[0];
  ShutdownRequests& shutdown = process.shutdown;
  process.registration.public_key = transport.guard().public_key();
  JoinCore join(self, process.registration, transport, process.declared);
  const Micros start = SteadyNow();
  const Micros deadline = start + std::chrono::milliseconds(process.timeout_ms);
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
  if (join.welcome()) return ReadWelcome(join, process);
  if (join.refused()) {
    const Stop stop{StopReason::kFailed, join.refused()->reason};
    PANDO_ASSIGN_OR_RETURN(MembershipEnd end,
                           ConcludeMembership(stop, join.refused()->kind, /*is_leaving=*/false));
    return JoinOutcome(end);
  }
  if (shutdown.first_signal() != 0) return StoppedBy(shutdown.first_signal());
  return Unavailable(fmt::format("no scheduler answered at {} within {} s; {}", scheduler_endpoint,
                                 process.timeout_ms / 1000.0,
                                 ExplainSilence(scheduler_endpoint,
                                                "is it running there, and is --join the "
                                                "endpoint that it printed?",
                                                keys)));
}

Result<int> RunMember(JoiningProcess& process, const MemberWork& work,
                      const std::function<void()>& on_given_up) {
  while (true) {
    PANDO_ASSIGN_OR_RETURN(JoinOutcome joined, JoinRun(process));
    if (auto* membership = std::get_if<Membership>(&joined)) {
      SetUpLog(
          {.process = fmt::format("{} {}", EnumName(process.registration.role), membership->rank),
           .is_verbose = process.is_verbose});
      PANDO_ASSIGN_OR_RETURN(joined, work(*membership));
    }
    const auto end = std::get<MembershipEnd>(joined);
    if (end != MembershipEnd::kGivenUp)
      return end == MembershipEnd::kFailed ? kExitFailed : kExitCompleted;
    on_given_up();
  }
}

HeartbeatSender::Options HeartbeatOptions(const Membership& membership) {
  return {.self = membership.self,
          .scheduler_endpoint = membership.scheduler_endpoint,
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

}  // namespace pando
