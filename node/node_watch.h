// NodeWatch handles the events outside the core while a server or worker is a member of a run: the
// signals to the process, and the scheduler's silence. A signal asks the process to leave in order,
// and a second one ends it at once. While the scheduler is silent, a process that is asked to leave
// waits only for kLeavePatience, and a process whose run has ended leaves.
// run.scheduler_timeout_ms ends all others. Threads: the thread of its loop.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "net/event_loop.h"
#include "net/heartbeat_sender.h"
#include "node/node_join.h"
#include "node/shutdown_signal.h"

namespace pando {

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
