// One state of the protocol's model: everything that its rules read, in a few integers.
//
// The model has at most two shards, two micro-batches and four steps, so that all states of a
// configuration can be visited. A state is plain bytes without padding: equal states are equal
// bytes, so the search (search.h) compares bytes.
//
// These are folded, because they commute with the steps beside them:
//  - an ack and the commit that it allows (P8): a commit requires living ackers in the same view;
//  - a complete root and its record (P7), except with partial values;
//  - a question and its answer, a request and its reply (P10, P17);
//  - a snapshot's file, the report of it and the scheduler's ack (P29).
// A message that a live sender repeats until it is answered (P10) is not in the state: its delivery
// is possible as long as the sender would repeat it. Messages that may still arrive without repeats
// are in the state: pushes of dead workers, superseded views, reports of pairs.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace pando::model {

constexpr int kShardsMax = 2;
constexpr int kMicroBatches = 2;  // N
constexpr int kStepsMax = 4;
constexpr int kStalenessMax = 1;
constexpr int kServerLivesMax = 5;  // a server that starts again is another life (P19)
constexpr int kWorkersMax = 3;
constexpr int kViewsMax = 10;
constexpr uint8_t kNobody = 7;   // no server, no worker
constexpr uint8_t kNothing = 7;  // no version
constexpr int kAllMicroBatches = (1 << kMicroBatches) - 1;
constexpr unsigned kVersionBits = 7;  // all bits of a version's field

// Sets of servers, micro-batches, shards and versions are masks: bit i stands for member i.
inline bool Has(int mask, int member) { return (mask >> member & 1) != 0; }
inline uint8_t With(int mask, int bits) { return static_cast<uint8_t>(mask | bits); }
inline uint8_t Without(int mask, int bits) { return static_cast<uint8_t>(mask & ~bits); }

struct ShardPlace {
  uint8_t primary;
  uint8_t in_sync;  // mask of servers, the primary among them
  uint8_t syncing;  // server or kNobody
  uint8_t pair;     // the view that made the pair (primary, syncing), 0 for none (P24)
  auto operator<=>(const ShardPlace&) const = default;
};

struct MicroBatchOwner {
  uint8_t worker;
  uint8_t previous;  // computes the steps before first_step (P18)
  uint8_t first_step;
  auto operator<=>(const MicroBatchOwner&) const = default;
};

struct View {
  std::array<ShardPlace, kShardsMax> shards;
  std::array<MicroBatchOwner, kMicroBatches> owners;
  uint8_t generation;
  uint8_t base;  // the version that the generation began from
  auto operator<=>(const View&) const = default;
};

enum ReplicaData : uint32_t {
  kNoData,
  kReceiving,  // chunks of a transfer (P20)
  kComplete,
  kRestoring,  // the generation's base has to be read from its snapshot (P21)
};

// One server's replica of one shard.
struct Replica {
  uint32_t data : 2;
  uint32_t newest : 3;  // versions kept: oldest..newest, 2 * staleness + 2 of them at most
  uint32_t oldest : 3;
  uint32_t committed : 3;  // of a primary: newest or newest - 1
  // A primary's: micro-batches held of the steps that update `newest` and the version after it, in
  // kMicroBatches bits each.
  uint32_t leaves : 4;
  uint32_t was_made_here : 1;  // `newest` was made from pushes, not from a primary's root
  // A primary's: the transfer to the syncing backup (P20, P24).
  uint32_t is_frozen : 1;
  uint32_t frozen_newest : 3;
  uint32_t frozen_oldest : 3;
  uint32_t needs_newcomer : 1;  // its acks are required from now on
  // A syncing backup's: the transfer that it receives.
  uint32_t source : 3;
  uint32_t awaits_answers : 1;  // a promoted primary's question (P22)
  uint32_t unused : 4;
  uint32_t source_newest : 3;
  uint32_t source_oldest : 3;
  uint32_t chunks : 4;  // received, one per version
  // A primary's: committed versions due for a snapshot, bit v - 1 for version v, until the
  // manifest.
  uint32_t to_store : 4;
  uint32_t more_unused : 18;
};

struct Server {  // one life of a server process
  std::array<Replica, kShardsMax> replicas;
  uint8_t is_alive;
  uint8_t view;
  uint8_t address;  // of the process whose life this is, kNoAddress for a life to come
  uint8_t unused;
};
constexpr uint8_t kNoAddress = 9;

enum WorkerPhase : uint8_t { kUnstarted, kJoining, kWorking, kDead };

struct Worker {
  uint8_t phase;
  uint8_t view;
  uint8_t generation;  // of the view; of a dead worker: of what it has left in the network
  uint8_t next_step;   // to compute
  uint8_t unasked;     // shards whose answer to the question of P17 is missing
  std::array<uint8_t, kShardsMax> answered_version;
  std::array<uint8_t, kShardsMax> answered_leaves;  // of two steps, as Replica's
  std::array<uint8_t, kShardsMax> current;          // version held, kNothing for none
  std::array<uint8_t, kShardsMax> known;            // newest version known to be committed
  // Micro-batches to compute again (P12) and gradients kept (P11), kMicroBatches bits per step.
  uint8_t missing;
  std::array<uint8_t, kShardsMax> unreplied;
};
inline bool IsAlive(const Worker& worker) {
  return worker.phase == kJoining || worker.phase == kWorking;
}

// The newest "newcomer is in sync" of a shard that may reach the scheduler, or none.
struct Report {
  uint8_t is_there : 1;
  uint8_t newcomer : 3;
  uint8_t pair : 4;
  bool operator==(const Report&) const = default;
};

// How often each fault and each free choice may still happen.
struct Budget {
  uint8_t server_kills, worker_kills, server_restarts, worker_joins;
  uint8_t suspicions, scheduler_restarts, moves, divergences;
};

struct State {
  std::array<uint16_t, kViewsMax> views;  // ViewTable ids by number, 0 if it is not needed any more
  uint8_t view_count;
  uint8_t removed;  // servers that a view has dropped
  Budget budget;
  // The newest version that may have been shown in the latest generation.
  std::array<uint8_t, kShardsMax> seen;
  std::array<Report, kShardsMax> reports;
  // Snapshots of the latest generation: reported to the scheduler (bit v - 1), newest manifest.
  std::array<uint8_t, kShardsMax> stored;
  uint8_t manifest;
  std::array<Worker, kWorkersMax> workers;
  std::array<uint8_t, 3> unused;
  std::array<Server, kServerLivesMax> servers;
};

static_assert(sizeof(Replica) == 8 && sizeof(Report) == 1);
static_assert(kMicroBatches * kStepsMax <= 8 && kMicroBatches * (kStalenessMax + 1) <= 4);
static_assert(std::is_trivially_copyable_v<State>);
static_assert(std::has_unique_object_representations_v<State>, "padding would make copies differ");

}  // namespace pando::model
