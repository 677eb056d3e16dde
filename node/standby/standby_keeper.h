// StandbyKeeper is the leader's side of its standbys. It reads from etcd which standbys there are,
// copies the run folder to them (Mirror), and decides which of them may lead.
//
//   a standby              | what the leader waits for   | key "complete"
//   -----------------------+-----------------------------+-----------------
//   announces itself       | nothing; it is filled       | without it
//   has been filled once   | it gets every row and file  | without it
//   has those, too, and    | the same                    | names it: it may lead
//   all members know it    |                             |
//   is silent, or gone     | the same, until etcd has it | without it
//
// So the leader never acknowledges a row, and commits no manifest, that a folder in "complete"
// lacks (P47). While etcd does not answer, the list stays, and the leader waits for a lost standby.
//
// Threads: any thread may call the functions; one thread, which this owns, asks etcd.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "node/standby/mirror.h"
#include "node/standby/seat.h"
#include "scheduler/scheduler_place.h"

namespace pando {

class StandbyKeeper {
 public:
  static constexpr Micros kLookInterval = std::chrono::milliseconds(400);
  static constexpr Micros kSilence = std::chrono::seconds(6);

  struct Options {
    EtcdPlace place;
    std::string folder;    // the leader's
    EtcdCompare election;  // every write compares it
    // Any thread. Gets a line for people when a standby may lead, and when it may no longer, and
    // empty texts for other changes of Places().
    std::function<void(const std::string& event, const std::string& text)> on_change;
  };
  // `mirror` outlives it.
  StandbyKeeper(Options options, Mirror& mirror);
  ~StandbyKeeper();

  // Everything that is in the run folder now.
  uint64_t Mark() { return mirror_.Mark(); }
  // Whether every standby for which the leader waits has reached the mark.
  bool HasReached(uint64_t mark) const;
  // The run's schedulers, this one first, for its members: at most kSchedulersMax. None while etcd
  // has not said where this one listens.
  std::vector<SchedulerPlace> Places() const;
  // A hash of their endpoints (HashEndpoints), which all members have to know before a standby that
  // waits for it is listed; 0: none waits.
  uint64_t awaited_hash() const { return awaited_hash_; }
  void NoteMembersKnow(uint64_t hash) { known_hash_ = hash; }
  // The run has ended: the standbys leave. False: etcd does not answer.
  bool TellEnd(const std::string& how);

 private:
  enum class Stage {
    kFilled,   // the leader does not wait for it
    kAwaited,  // the leader waits for it, from here on
    kListing,  // etcd's list may have it, by a request whose answer is not known
    kListed,   // etcd's list has it
  };
  struct Standby {
    std::string endpoint;
    Stage stage = Stage::kFilled;
    uint64_t due = 0;  // the mark that it has to reach before the next stage
    bool is_awaited() const { return stage >= Stage::kAwaited; }
  };
  void Run(const std::stop_token& stop);
  void Look();
  void Follow(const std::string& folder, Standby standby, bool is_there);
  void OnLost(const std::string& folder, const Standby& standby);
  void Set(const std::string& folder, const Standby& standby);
  // Changes the members that other threads read, and says that Places() has changed.
  void Change(const std::function<void()>& change);
  bool WriteComplete(const std::string& folder, bool is_in);
  bool HasReached(const std::string& folder, uint64_t mark) const;
  bool DoMembersKnow(const std::string& endpoint);

  const Options options_;
  Mirror& mirror_;
  EtcdClient client_;         // the thread's
  mutable std::mutex mutex_;  // guards the next two
  std::string own_endpoint_;
  std::map<std::string, Standby> standbys_;  // by folder
  std::atomic<uint64_t> awaited_hash_{0};
  std::atomic<uint64_t> known_hash_{0};
  std::optional<int64_t> list_revision_;  // of the key "complete"; the thread's
  std::jthread thread_;
};

}  // namespace pando
