// JoinRun makes a server or worker process part of a run, and RunMember runs one to its end. The
// server and the worker process use them, and so does the worker inside a program (embed/).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/buffer_pool.h"
#include "net/event_loop.h"
#include "net/heartbeat_sender.h"
#include "node/shutdown_signal.h"
#include "plan/job_plan.h"
#include "proto/join_core.h"

namespace pando {

// The scheduler's welcome to this process.
struct Membership : Welcome {
  PeerId self;  // lane 0
  PeerId scheduler;
  JobId job_id;
  Job job;
  std::string scheduler_endpoint = {};  // as this process dials it
};

// Returns the options of the sender that tells the scheduler that we live.
HeartbeatSender::Options HeartbeatOptions(const Membership& membership);
// Makes a transport speak in clear text if run.encrypt = "control" (P44), and share memory with
// this host's other processes as run.transport says (P42). Returns where to allocate payloads, or
// an error if the job requires shared memory and this host has none. May be called again after the
// process has joined again.
Result<BufferSource> PrepareLines(const Job& job, Transport& transport, OnMapped on_mapped = {});
// Reports a failure of this machine to the scheduler, so that it knows the cause. `generation` is
// that of the view, or 0 without a view.
void TellScheduler(Transport& transport, const Membership& membership, uint32_t generation,
                   const Status& failure);

// Returns a registration with HostName and process id.
Register DescribeProcess(Role role, uint32_t wanted_rank);

// How a membership ended, if nothing failed on this side.
enum class MembershipEnd {
  kStopped,  // the scheduler ended it
  kFailed,   // the scheduler ended it because the run has failed
  kGivenUp,  // the scheduler declared this incarnation dead: the process may join as another one
};

// Logs how the membership ended, and tells this process's supervisor. `refusal` is the scheduler's
// refusal, if any. kInvalidArgument: this process does not fit.
Result<MembershipEnd> ConcludeMembership(const Stop& stop,
                                         const std::optional<RefusalKind>& refusal,
                                         bool is_leaving);

// A process that joins a run, and joins again if the scheduler has given it up. Transports,
// shutdown and `declared` outlive it.
struct JoiningProcess {
  std::vector<Transport*> transports;  // by lane; the first one registers
  Register registration;               // JoinRun keeps the rank here, for another life
  std::string scheduler_endpoint;
  uint32_t timeout_ms;
  ShutdownRequests& shutdown;
  const DeclaredRun* declared = nullptr;  // the run that this process declares (P43)
  bool is_verbose = false;
};

// Returns where a process listens without --bind: any free port of this machine's address on the
// way to the scheduler. Waits for the scheduler's name to be known, up to the process's timeout.
Result<std::string> DefaultBind(const JoiningProcess& process);

// Makes the process another incarnation, registers it, and waits for the answer. Logs what it waits
// for. A membership that never began can also end: the run was over, or the welcome was lost until
// the scheduler declared this incarnation dead. kUnavailable: no answer within `timeout_ms`;
// kInvalidArgument: refused; kInterrupted.
using JoinOutcome = std::variant<Membership, MembershipEnd>;
Result<JoinOutcome> JoinRun(JoiningProcess& process);

// Runs a server or worker process to its end: joins, names the log, does `work`, and joins again
// after `on_given_up` if the scheduler has given it up. Returns the exit code.
using MemberWork = std::function<Result<MembershipEnd>(Membership& membership)>;
Result<int> RunMember(
    JoiningProcess& process, const MemberWork& work,
    const std::function<void()>& on_given_up = [] {});

// Returns where this process finds the run's folder, as the scheduler names it.
std::string RunDirFor(const Membership& membership);
// With snapshot.store = "folder" a server stores snapshots in the run's folder and starts from
// them. kInvalidArgument: it cannot, and the error says what to do; kUnavailable: this may pass.
Status CheckRunFolder(const Membership& membership);

}  // namespace pando
