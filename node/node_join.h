// JoinRun makes a server or worker process part of a run. NodeWatch notices that the run's
// scheduler has gone. The server and the worker process use them.
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

// The scheduler's welcome to this process.
struct Membership : Welcome {
  PeerId self;  // lane 0
  PeerId scheduler;
  JobId job_id;
  Job job;
};

// Returns the options of the sender that tells the scheduler at `endpoint` that we live.
HeartbeatSender::Options HeartbeatOptions(const Membership& membership,
                                          const std::string& endpoint);
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

// Registers through `transport`, which has dialed the scheduler, and waits for the answer. Logs
// what it waits for. A membership that never began can also end: the run was over, or the welcome
// was lost until the scheduler declared this incarnation dead. kUnavailable: no answer within
// `timeout_ms`; kInvalidArgument: refused; kInterrupted. `declared` is the run that this process
// declares (P43).
using JoinOutcome = std::variant<Membership, MembershipEnd>;
Result<JoinOutcome> JoinRun(Transport& transport, Incarnation self, const Register& registration,
                            const std::string& scheduler_endpoint, uint32_t timeout_ms,
                            ShutdownRequests& shutdown, const DeclaredRun* declared = nullptr);

// Returns where this process finds the run's folder, as the scheduler names it.
std::string RunDirFor(const Membership& membership);
// With snapshot.store = "folder" a server stores snapshots in the run's folder and starts from
// them. kInvalidArgument: it cannot, and the error says what to do; kUnavailable: this may pass.
Status CheckRunFolder(const Membership& membership);

// NodeWatch handles events outside the core while a server or worker is a member. A signal asks it
// to leave in order; a second one ends it at once. While the scheduler is silent, a process that is
// asked to leave waits only for kLeavePatience, one whose run has ended leaves, and
// run.scheduler_timeout_ms ends all others. Threads: the thread of its loop.
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

  // Returns the event source for a loop.
  LocalEvents Source();
  // How the membership ended without word from the scheduler; none while it goes on.
  const std::optional<Result<MembershipEnd>>& verdict() const { return verdict_; }
  // How the run has ended, according to its folder.
  const std::optional<Stop>& stop() const { return stop_; }
  bool is_leaving() const { return leaving_since_.has_value(); }

 private:
  void Look(Micros now);
  void LookAtSignals(Micros now);
  void LookAtScheduler(Micros now);
  void LookAtFolder(Micros now);
  // A thread reads the folder, because a folder on the network may be slow.
  struct FolderLook {
    std::atomic<bool> is_done = false;
    std::optional<Stop> end;  // how the run has ended; none if the folder does not tell it
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
