// Swarm: what one seed's story may contain. Each seed draws a random subset of the faults, with
// random intensities (swarm testing: Groce et al. 2012), so that rare mixtures come up and one
// fault's noise does not always drown another.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "plan/job_plan.h"
#include "server/norms/norm_tree.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"
#include "worker/push_sender.h"

namespace pando::sim {

enum class FaultKind : uint8_t {
  kKillWorker,
  kKillServer,
  kKillScheduler,
  kKillSeveral,  // two or three of any role at one instant
  kKillAllWorkers,
  kKillAllServers,
  kPause,      // SIGSTOP ... SIGCONT
  kPartition,  // one place from some or all others, both ways
  kOneWayPartition,
  kReset,  // of a process's connections
  kSlowWorker,
  kDiskTrouble,  // slow or failing snapshot disk for a while
  kJoinWorker,
  kJoinServer,
  kDrain,            // by a client's command
  kLeave,            // by SIGTERM
  kSnapshotNow,      // by a client's command
  kSecondScheduler,  // the scheduler pauses, another starts on its folder, then both go on
  kPowerOff,         // everybody dies; resumed with other numbers
  kLateCopy,         // a message arrives a second time, seconds later
  kStop,             // by a client's command; resumed with other numbers
  kCount
};
inline constexpr size_t kFaultKindCount = static_cast<size_t>(FaultKind::kCount);
const char* FaultName(FaultKind kind);

// Directed options, for mutations and scenarios that the general draw meets too rarely.
enum class Focus : uint8_t {
  kNone,
  kCalm,        // a network with its noise, and no other fault
  kWorkers,     // workers come and go
  kServers,     // servers come and go, two replicas
  kTransfers,   // servers join and die while images travel
  kRollbacks,   // one replica, snapshots, servers die
  kScheduler,   // the scheduler dies, pauses, doubles
  kDivergence,  // a backup is given one wrong bit
  kFlip,        // a worker computes one wrong bit, and micro-batches are verified
  kPauses,      // late ticks, no deaths
  kEvaluation,  // pins in the way
  kMoves,       // servers join and leave in plenty, and old messages come late
  kEchoes,      // old messages in plenty at every change of the view
  kHandovers,   // shards move while workers die, and old messages come again at every new view
  kSilences,    // servers hear one another no more, and die
  kPartials,    // updates wait for other shards' values; servers die
  kDecisions,   // early stops, with any deaths
  kShared,      // payloads are read in place, with any deaths or delays
  kHosts,       // workers of one host sum there first, with any deaths or delays
  kRacks,       // workers of one rack do, each for other shards
  kStops,       // the run is stopped and resumed, while processes die
  kHostile,     // any faults, and a hostile peer (tests/sim/hostile)
  kFiles,       // snapshots travel to the scheduler, with any deaths
  kLostViews,   // the scheduler's journal loses its newest view, while others die
  kStale,       // general faults, with train.staleness = 1
  kRounds,      // the same with few long micro-batches, as rounds of local steps are
  kTriples,     // three replicas, servers come and go, two at once
  kVotes,       // three replicas, and one has wrong bits
  kStandbys,    // the scheduler dies or stops, and a standby leads with its copy of the folder
  kDeclared,    // a program declares the run: another story (tests/sim/declarations.h)
  kCount
};
std::optional<Focus> FocusNamed(std::string_view name);

struct Swarm {
  NetworkOptions network;
  std::array<bool, kFaultKindCount> kinds{};
  uint32_t fault_count = 0;
  Micros fault_phase{0};
  double trigger_share = 0;     // faults that wait for a message of some kind to be sent
  double restart_share = 1;     // of those killed, how many come back
  Micros restart_after_max{0};  // the supervisor's back-off
  double same_pid_share = 0;    // a container's restarted process has its old number
  double exit_note_share = 0;   // deaths that a supervisor tells of; the others end their lease
  double disconnect_share = 0;  // deaths and resets that the scheduler's sockets see
  double lost_connection_share = 0;  // deaths that take what was under way with them
  double lost_view_share = 0;        // of its deaths, those with which the journal loses a view
  double torn_commit_share = 0;      // of the scheduler's deaths, those within a journal commit
  Micros disk_time_max{0};           // to write or read one record
  bool has_divergence = false;
  bool has_flip = false;
  bool has_three_replicas = false;
  bool has_memory_flip = false;  // of a replica's newest record
  double server_share = 0.5;     // of the faults of servers and workers
  double speed_spread = 1;       // the slowest worker's time over the fastest's
  bool files_travel = false;     // to the scheduler and back (P45)
  Micros copy_lag_max{0};        // of a standby scheduler's folder; 0: there is none (P47)
  bool shares_memory = false;    // payloads are read where they lie (P42)
  std::optional<size_t> push_window_bytes = {};
  size_t norm_peers_max = NormTree::kPeersMax;
  uint32_t host_count = 3;
  uint32_t rack_count = 0;     // 0: processes have no racks
  bool has_keys = false;       // views are signed
  Micros hostile_interval{0};  // between a hostile peer's messages; 0: there is none
};

Swarm DrawSwarm(Chance& chance, Focus focus);
// A job over a model of a few shards, long enough for the faults to meet it.
JobPlan DrawPlan(Chance& chance, const Swarm& swarm, Focus focus);
// Draws the time of a micro-batch, so that the job lasts about as long as the faults.
Micros DrawMicroBatchTime(Chance& chance, const Swarm& swarm, const JobPlan& plan);

}  // namespace pando::sim
