// JoinRun: how a server or worker process becomes part of a run, and how it learns that the run's
// scheduler has gone. Used by the server and the worker process.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "common/buffer_pool.h"
#include "net/event_loop.h"
#include "net/heartbeat_sender.h"
#include "node/shutdown_signal.h"
#include "plan/job_plan.h"
#include "proto/join_core.h"

namespace pando {

// What the scheduler said when it welcomed this process.
struct Membership : Welcome {
  PeerId self;  // lane 0
  PeerId scheduler;
  JobId job_id;
  Job job;
};

// Of the sender that tells the scheduler at `endpoint` that this process lives.
HeartbeatSender::Options HeartbeatOptions(const Membership& membership,
                                          const std::string& endpoint);
// Makes a transport speak in clear text with run.encrypt = "control" (P44), and share memory with
// its host's other processes as run.transport says (P42). Returns where to allocate payloads, or an
// error if the job requires shared memory and this host has none. May be called again, after the
// process has joined again.
Result<BufferSource> PrepareLines(const Job& job, Transport& transport, OnMapped on_mapped = {});
// Tells the scheduler of a failure of this machine, so that it knows this cause. `generation` is
// the view's; 0: there is none yet.
void TellScheduler(Transport& transport, const Membership& membership, uint32_t generation,
                   const Status& failure);

// HostName and process id, for the registration.
Register DescribeProcess(Role role, uint32_t wanted_rank);

// How a membership ended, where nothing went wrong on this side.
enum class MembershipEnd {
  kStopped,  // the scheduler said so
  kFailed,   // the scheduler said so: the run has failed
  kGivenUp,  // the scheduler took this incarnation for dead: the process may join as another one
};

// Logs how the membership ended, and tells this process's supervisor. `refusal`: how the scheduler
// refused, if it did.  kInvalidArgument where this process does not fit.
Result<MembershipEnd> ConcludeMembership(const Stop& stop,
                                         const std::optional<RefusalKind>& refusal,
                                         bool is_leaving);

// Registers through `transport`, which has dialed the scheduler, and waits for its answer. Logs
// what it waits for. A membership that never began can end too: the run was over, or the welcome
// was lost until the scheduler declared this incarnation dead. kUnavailable after `timeout_ms`,
// kInvalidArgument when refused, kInterrupted. `declared`: the run that this process declares
// (P43).
using JoinOutcome = std::variant<Membership, MembershipEnd>;
Result<JoinOutcome> JoinRun(Transport& transport, Incarnation self, const Register& registration,
                            const std::string& scheduler_endpoint, uint32_t timeout_ms,
                            ShutdownRequests& shutdown, const DeclaredRun* declared = nullptr);

// Where this process finds the run's folder, as the scheduler names it.
std::string RunDirFor(const Membership& membership);
// With snapshot.store = "folder" a server stores snapshots in the run's folder and starts from
// them. kInvalidArgument if it cannot, which says what to do; kUnavailable if that may pass.
Status CheckRunFolder(const Membership& membership);

// NodeWatch attends to what a server or worker does by itself while it is a member: a signal asks
// it to leave in order; a second one ends it at once. While the scheduler is silent, a process that
// is asked to leave waits for kLeavePatience only, one whose run has ended leaves, and
// run.scheduler_timeout_ms ends all others. Threads: that of the loop it is a source of.
class NodeWatch {
 public:
  static constexpr Micros kLeavePatience = std::chrono::seconds(4);

  // `leave` makes the core send Leave to the scheduler; called once. All outlive the watch.
  NodeWatch(ShutdownRequests& shutdown, const HeartbeatSender& heartbeat,
            const Membership& membership, std::function<void(Micros now)> leave)
      : shutdown_(shutdown),
        heartbeat_(heartbeat),
        membership_(membership),
        leave_(std::move(leave)) {}

  // A loop's local event source.
  LocalEvents Source();
  // How the membership ended without the scheduler's word; none while it goes on.
  const std::optional<Result<MembershipEnd>>& verdict() const { return verdict_; }
  // How the run has ended, as its folder says.
  const std::optional<Stop>& stop() const { return stop_; }
  bool is_leaving() const { return leaving_since_.has_value(); }

 private:
  void Look(Micros now);
  void LookAtSignals(Micros now);
  void LookAtScheduler(Micros now);
  void LookAtFolder(Micros now);
  // Reading may take long, on a folder of the network: a thread does it.
  struct FolderLook {
    std::atomic<bool> is_done = false;
    std::optional<Stop> end;  // how the run has ended; none: it has not, as far as the folder says
  };
  static void Read(const std::string& run_dir, const std::string& run_id, FolderLook& look);

  ShutdownRequests& shutdown_;
  const HeartbeatSender& heartbeat_;
  const Membership& membership_;
  const std::function<void(Micros now)> leave_;
  std::optional<Micros> leaving_since_;
  bool is_alone_ = false;  // the scheduler's silence has been noted
  std::shared_ptr<FolderLook> folder_look_;
  Micros folder_at_{0};  // when to look into the run's folder again
  std::optional<Stop> stop_;
  std::optional<Result<MembershipEnd>> verdict_;
};

}  // namespace pando
