// The simulator's disks. VirtualDisk is the snapshot folder that all servers share: writing and
// reading take time, may fail, and a crash loses what is not finished. JournalDisk is the
// scheduler's file: a crash keeps exactly what Commit returned for, and a higher term shuts a lower
// one out.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/journaled_outbox.h"
#include "server/snapshot_port.h"
#include "tests/sim/world.h"

namespace pando::sim {

class VirtualDisk {
 public:
  struct Record {
    uint64_t hash = 0;
    std::string file;
    std::vector<float> parameters;
    std::vector<float> state;
    uint64_t number = 0;  // among the files that were ever written, from 1
  };
  VirtualDisk(World& world, Micros time_max) : world_(world), time_max_(time_max) {}

  // `done` is called when the request has ended, unless the process has died by then (`is_alive`).
  using IsAlive = std::function<bool()>;
  using Done = std::function<void(SnapshotEvent)>;
  void Store(StoreRequest request, IsAlive is_alive, Done done);
  void Load(LoadRequest request, IsAlive is_alive, Done done);
  void Drop(const SnapshotManifest& manifest);  // the files that it names
  // Forgets all files but the first ones that were written: a copy of the folder lacks them.
  void LoseAllBut(uint64_t file_count);
  uint64_t kept_count() const { return kept_count_; }
  // Whether the files that it names hold the records that it names.
  SnapshotCheck Check(const SnapshotManifest& manifest) const;
  // For a while requests take so much longer, and this share of writes fails.
  void Trouble(Micros until, double slowness, double failure_share);
  void Heal() { troubled_until_ = std::min(troubled_until_, world_.now()); }
  bool is_troubled() const { return world_.now() < troubled_until_; }
  Micros troubled_until() const { return troubled_until_; }

  // ---- as the files of a store (P45)
  using Key = std::pair<SnapshotRef, ShardId>;
  // Trouble may change its bits.
  void Keep(const Key& key, Record record);
  std::pair<Key, const Record*> FindFile(const std::string& file) const;
  std::vector<std::string> Files() const;
  static bool IsSound(Version version, const Record& record);
  // Whether trouble makes this request fail, which is counted.
  bool FailsNow();
  void NoteLost() { ++lost_count_; }
  void NoteUnread() { ++unread_count_; }

  // Finished writes of this shard, any of which a reader may meet.
  const std::vector<Record>* Find(SnapshotRef snapshot, ShardId shard) const;
  uint64_t failed_count() const { return failed_count_; }
  uint64_t lost_count() const { return lost_count_; }
  uint64_t loaded_count() const { return loaded_count_; }
  // How many records could not be read, since the last call.
  uint64_t TakeUnread() { return std::exchange(unread_count_, 0); }

 private:
  Micros TimeOfOne();

  World& world_;
  Micros time_max_;
  Micros troubled_until_{0};
  double slowness_ = 1;
  double failure_share_ = 0;
  uint64_t file_count_ = 0;
  uint64_t kept_count_ = 0;
  uint64_t failed_count_ = 0;
  uint64_t lost_count_ = 0;  // torn: the process died while it wrote
  uint64_t loaded_count_ = 0;
  uint64_t unread_count_ = 0;
  std::map<Key, std::vector<Record>> records_;
};

class JournalDisk {
 public:
  explicit JournalDisk(const World& world) : world_(world) {}  // outlives it
  // The newest state; none before the first commit.
  const std::optional<SchedulerState>& state() const { return state_; }
  // Reads it and takes the lead: the previous leader cannot write any more.
  const std::optional<SchedulerState>& Open(Incarnation leader);
  // False if another leads, or a higher term is there.
  bool Commit(Incarnation leader, const SchedulerState& state);
  // Goes back to before the newest view, if it is not old. The leader is dead.
  bool LoseNewestView(Micros now);

 private:
  static constexpr Micros kLostMax = std::chrono::milliseconds(300);
  std::optional<SchedulerState> before_view_;
  Micros view_at_{0};
  const World& world_;
  std::optional<SchedulerState> state_;
  Incarnation leader_;
};

}  // namespace pando::sim
