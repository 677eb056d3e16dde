// The state of the model of standby schedulers (standby_main.cc).
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace pando::model::standby {

constexpr int kSeats = 3;
// By hand: three faults take half a minute and 3 GB, with two rows two minutes and 9 GB.
constexpr size_t kRows = 1;
constexpr int kFaultsMax = 2;
// A run folder has items in this order: the rows, a snapshot, the final weights.
constexpr size_t kWeights = kRows + 1;
constexpr size_t kItems = kWeights + 1;
constexpr int8_t kNone = -1;  // no seat

struct Journal {
  int8_t leader = kNone;
  uint8_t term = 0;      // the leader's session
  uint8_t complete = 1;  // the list. Bit seat: its folder has everything
  // The manifest and `finished`, by the session of the leader that wrote the file. 0: there is
  // none.
  std::array<uint8_t, kItems - kRows> files{};
  auto operator<=>(const Journal&) const = default;
};

// A transaction without an answer. It or a copy of it may be executed later.
enum LateStage : uint8_t { kNoCommit, kOnItsWay, kExecuted, kOutdated };
struct LateCommit {
  LateStage stage = kNoCommit;
  int8_t seat = kNone;
  uint8_t session = 0;
  Journal journal;
  auto operator<=>(const LateCommit&) const = default;
};

enum Phase : uint8_t { kLost, kDead, kStandby, kWon, kHasRead, kLeads };

struct Process {
  Phase phase = kStandby;  // kLost: with its disk
  bool is_stopped = false;
  bool believes = false;    // its lease's deadline has not passed
  bool knows_head = false;  // the head has the revision that it compares
  bool has_late_commit = false;
  uint8_t session = 0;    // the create revision of the key that it won
  uint8_t waits_for = 0;  // bit seat: nothing is promised before it has it
  auto operator<=>(const Process&) const = default;
};

struct Disk {
  uint8_t session = 0;     // of the leader that fills it
  bool is_source = false;  // it is this leader's
  // By the session of the leader that wrote the item first. 0: the disk lacks it.
  std::array<uint8_t, kItems> items{};
  auto operator<=>(const Disk&) const = default;
  size_t FirstMissing() const {
    return static_cast<size_t>(std::ranges::find(items, 0) - items.begin());
  }
};

struct Seat {
  Process process;
  Disk disk;
  bool is_cut_off = false;  // from etcd
  auto operator<=>(const Seat&) const = default;
};

struct State {
  // etcd. The election's key, if it has a holder, has the newest create revision.
  int8_t holder = kNone;
  uint8_t revision = 0;
  bool is_away = false;
  Journal journal;
  LateCommit late;
  std::array<Seat, kSeats> seats;
  std::array<uint8_t, kRows> acked{};  // as items. Members do not send these rows again
  uint8_t faults = 0;
  auto operator<=>(const State&) const = default;

  // An acknowledged row, or a file that the journal names.
  uint8_t Promised(size_t item) const {
    return item < kRows ? acked[item] : journal.files[item - kRows];
  }
  bool ReachesEtcd(int8_t seat) const {
    return !is_away && !seats[static_cast<size_t>(seat)].is_cut_off;
  }
  bool IsHolder(int8_t seat, uint8_t session) const {
    return holder == seat && revision == session;
  }
};

constexpr uint8_t Bit(int8_t seat) { return static_cast<uint8_t>(1 << seat); }
template <class AnyState>
auto& At(AnyState& state, int8_t seat) {
  return state.seats[static_cast<size_t>(seat)];
}
inline bool MaySpeak(const Process& process) {
  return process.phase == kLeads && process.believes && !process.is_stopped;
}
inline bool IsUp(const Process& process) {
  return process.phase >= kStandby && !process.is_stopped;
}

}  // namespace pando::model::standby
