#include "node/node_join.h"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "common/clock.h"
#include "common/system.h"
#include "job/job_file.h"
#include "net/address.h"

namespace pando {
namespace {

constexpr Micros kWaitingNoteFirst = std::chrono::seconds(1);
constexpr Micros kWaitingNoteInterval = std::chrono::seconds(3);
// Heartbeats without an answer after which the log says that the scheduler is away.
constexpr int kSilentHeartbeats = 8;
// A core that waits for nothing but messages has no deadline that would wake its loop.
constexpr Micros kLookInterval = std::chrono::milliseconds(250);

Status StoppedBy(int signal) {
  return Interrupted(fmt::format("stopped by {}", signal == SIGINT ? "Ctrl-C" : "a signal"));
}

Result<JoinOutcome> ReadWelcome(const JoinCore& join) {
  PANDO_ASSIGN_OR_RETURN(Job job, ParseJobText(join.welcome()->job_toml, "the scheduler's job"));
  return JoinOutcome(
      Membership{*join.welcome(), join.self(0), join.scheduler(), join.job(), std::move(job)});
}

Status StartSharing(Transport& transport, bool is_required) {
  PANDO_ASSIGN_OR_RETURN(std::shared_ptr<SharedPool> pool, SharedPool::Create());
  return transport.ShareMemory(
      {.pool = std::move(pool), .is_required = is_required, .on_note = [](const std::string& text) {
         spdlog::info("{}", text);
       }});
}

}  // namespace

Register DescribeProcess(Role role, uint32_t wanted_rank) {
  return {.role = role,
          .host = HostName(),
          .process_id = static_cast<uint32_t>(getpid()),
          .wanted_rank = wanted_rank};
}

Result<JoinOutcome> JoinRun(Transport& transport, Incarnation self, const Register& registration,
                            const std::string& scheduler_endpoint, uint32_t timeout_ms,
                            ShutdownSignal& shutdown) {
  TransportOutbox outbox(transport);
  JoinCore join(self, registration, outbox);
  const Micros start = SteadyNow();
  const Micros deadline = start + std::chrono::milliseconds(timeout_ms);
  Micros note_at = start + kWaitingNoteFirst;
  const auto watch = [&](Micros now) {
    shutdown.Take();
    if (now < note_at) return;
    spdlog::info("waiting for the scheduler at {} since {} s", scheduler_endpoint,
                 (now - start) / std::chrono::seconds(1));
    note_at += kWaitingNoteInterval;
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
                                                "endpoint that it printed?")));
}

Result<Model> CreateModel(const Membership& membership) {
  return Model::Create(membership.job, membership.data.shape, membership.data.class_count);
}

HeartbeatSender::Options HeartbeatOptions(const Membership& membership,
                                          const std::string& endpoint) {
  return {.self = membership.self,
          .scheduler_endpoint = endpoint,
          .interval = std::chrono::milliseconds(membership.job.heartbeat_ms)};
}

Result<BufferSource> ShareMemory(const Job& job, Transport& transport) {
  const bool is_required = job.transport == "shm";
  if (job.transport != "auto" && !is_required) return BufferSource();
  if (transport.shared_pool() == nullptr) {
    const Status status = StartSharing(transport, is_required);
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
  spdlog::info("{}: {}", stop.reason == StopReason::kDrained ? "left" : "the run has ended",
               stop.text);
  return MembershipEnd::kStopped;
}

LocalEvents NodeWatch::Source() {
  return {shutdown_.fd(), [this](Micros now) { Look(now); }, kLookInterval};
}

void NodeWatch::Look(Micros now) {
  if (!verdict_.ok()) return;
  LookAtSignals(now);
  if (verdict_.ok()) LookAtScheduler(now);
}

// Any signal concerns this process only: the run continues.
void NodeWatch::LookAtSignals(Micros now) {
  while (const int signal = shutdown_.Take()) {
    if (std::exchange(is_leaving_, true)) {
      verdict_ = StoppedBy(signal);
      return;
    }
    spdlog::info(
        "leaving: others take over the work first; another signal ends the process at once");
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
  if (silence <= silence_max) return;
  verdict_ = Unavailable(
      fmt::format("the scheduler has not answered for {} s: it was killed, or cannot be "
                  "reached any more; look at its log",
                  silence_max / std::chrono::seconds(1)));
}

}  // namespace pando
