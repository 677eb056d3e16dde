// ProgramWorker: a worker's part in a run, inside another program: joining, the protocol thread,
// heartbeats, and joining again after this process was declared dead. It does for a program what
// node/worker_process does for `pando worker`. embed/pando_worker.cc, its C interface, uses it.
//
// Threads: makes a protocol thread, which makes the others; any thread may call the functions.
// Owns: everything of the library.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/buffer_pool.h"
#include "common/event_fd.h"
#include "common/result.h"
#include "embed/files_thread.h"
#include "embed/program_computer.h"
#include "files/temporary_folder.h"
#include "net/heartbeat_sender.h"
#include "net/zmq/zmq_context.h"
#include "node/node_join.h"
#include "node/session_worker.h"
#include "node/shutdown_signal.h"
#include "proto/join_core.h"

namespace pando {

// The program's request to leave its run, for loops that otherwise look at signals.
class LeaveRequest : public ShutdownRequests {
 public:
  void Request() {
    if (!is_requested_.exchange(true)) event_.Raise();
  }
  int fd() const override { return event_.fd(); }
  int Take() override;
  int first_signal() const override { return was_taken_ ? kSignal : 0; }

 private:
  static constexpr int kSignal = 15;  // as if SIGTERM had asked

  EventFd event_;
  std::atomic<bool> is_requested_ = false;
  std::atomic<bool> was_taken_ = false;
};

class ProgramWorker {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  struct Options {
    std::string scheduler;
    Job job;               // as declared
    DeclaredRun declared;  // the same as text, and version 0
    std::string kind;
    uint32_t start_timeout_ms = 60000;
    uint32_t wanted_rank = kAnyRank;
    std::string rack = {};  // where its workers' gradients are summed, and where it listens then,
    std::string bind = {};  // as MemberArgs have them
    bool insecure = false;
  };
  // How the run ended for this process.
  struct Ending {
    Status failure;            // of this process; ok: `stop` says how it ended
    std::optional<Stop> stop;  // none: the run was already over
    // Has final.safetensors, if the run folder is on another machine; null if there is none.
    std::shared_ptr<const TemporaryFolder> weights;
  };
  // Facts about a run that has this process.
  struct Facts {
    Membership membership;
    bool took_over = false;  // version 0 is another worker's, and differs
  };

  explicit ProgramWorker(Options options);
  // Ends the threads. If the run has not ended, this worker is lost to it as if it were killed.
  ~ProgramWorker();

  // Waits until the run has this process; returns false at the deadline.
  bool AwaitJoin(Deadline deadline) const;
  // REQUIRES: AwaitJoin was true, and the run did not end before this process joined.
  ProgramComputer& computer() { return *computer_; }
  const JobPlan& plan() const { return *plan_; }
  const Facts& facts() const { return *facts_; }
  bool has_joined() const;

  // Null while the run goes on.
  const Ending* ending() const;
  bool AwaitEnd(Deadline deadline) const;
  void Leave() { leave_.Request(); }

 private:
  void Run();
  Result<Ending> LiveToTheEnd();
  Result<Ending> Live();
  Status Check(const Membership& membership) const;
  Status Enter(const Membership& membership);
  Result<Ending> Train(const Membership& membership);
  Status FetchFinalWeights(const Membership& membership, const std::string& folder);
  void Conclude(Ending ending);

  Options options_;
  LeaveRequest leave_;
  FilesThread files_;
  ComputeNewsBox news_;
  StopFlag close_;  // the library is being closed

  mutable std::mutex mutex_;  // guards the state for which the program waits
  mutable std::condition_variable changed_;
  bool has_joined_ = false;
  std::optional<Ending> ending_;

  // Used by the protocol thread. Those that the program uses are set before has_joined_.
  std::unique_ptr<ZmqContext> context_;
  std::unique_ptr<Transport> transport_;
  std::optional<SumLines> sum_lines_;
  std::optional<JoiningProcess> process_;
  bool is_given_up_ = false;
  std::optional<Facts> facts_;
  std::optional<JobPlan> plan_;
  BufferSource buffers_;
  std::unique_ptr<ProgramComputer> computer_;
  std::thread thread_;  // last: it uses all members above
};

}  // namespace pando
