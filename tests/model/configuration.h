// The limits of one run of the model: how many of each there are, which faults may happen how
// often, and which rule is left out. configuration.cc has the named ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tests/model/state.h"

namespace pando::model {

// Each removes one rule of docs/protocol.md, or breaks it.
enum class Mutation {
  kNone,
  kNoBarrier,                // P4
  kShowUncommitted,          // P9
  kSilentDuplicate,          // P10: a repeated push of a finished step gets no answer
  kNoBehind,                 // P10
  kUninterruptibleWait,      // P12
  kRootsAcrossViews,         // P13: replication without equal views
  kCommitBeforeAck,          // P8
  kPartialsFromRecordsOnly,  // P16: not from the moment that the root is complete
  kPartialsNotInBackups,     // P16
  kNoQuestion,               // P17
  kLateAnswerCounts,         // P17: an answer to an earlier view's question
  kJoinerKeepsWaiting,       // P18: the first step does not lapse
  kDeadPreviousOwner,        // P18
  kNoReceiverIncarnation,    // P19
  kNoIncarnations,           // P19
  kTransferOneVersion,       // P20
  kForgetRoot,               // P22: a promoted replica cannot resend its newest root
  kPromotedCommitsAlone,     // P22, P24: commits its newest version when it is alone in sync
  kReportWithoutAcks,        // P24: acks are not required before the report
  kReportAtCommitted,        // P24: reported when the *committed* versions are acked
  kReportAfterChunks,        // P24: reported after the chunks, roots behind them unacked
  kNoPairStamp,              // P24
  kPairStampsNewcomerOnly,   // P24: a new source is the same pair
  kForgetPushed,             // P11
  kNoGeneration,             // P21: messages do not carry it
  kKeepStateAtRollback,      // P21: a node that enters a newer generation keeps what it has
  kOldGenerationStores,      // P21, P29: the scheduler counts files of an older generation
  kAckStoreBeforeManifest,   // P29: the scheduler acks a file before its manifest is persisted
  kReportOnce,               // P10, P25: "newcomer in sync" is not repeated
  kAnnounceBeforePersist,    // P25
  kPromoteBeforeSync,        // planned moves: a newcomer is promoted before it is in sync
  // ---- fixed staleness
  kKeepOneLess,          // P4: a replica keeps 2 * staleness + 1 versions
  kBarrierOneLater,      // P4: a worker sends one more step ahead of the commits
  kAnswerNamesOneStep,   // P17: an answer's second step is taken to lack nothing
  kTransferTwoVersions,  // P20: an image has two versions, as without staleness
  kSnapshotOneVersion,   // P29: a snapshot lacks the earlier version
};

struct Configuration {
  std::string_view name;
  int shards = 1;
  int steps = 2;
  int servers = 3;
  int replicas = 2;
  int workers = 2;
  int staleness = 0;  // step t reads version t - staleness
  Budget budget = {};
  bool may_lose_replicas = false;  // the last in-sync replica may die: rollback (P21)
  bool may_readd = false;          // a living server that was dropped may be added again
  bool has_partials = false;       // P14 to P16
  bool has_snapshots = false;      // every version is due
  bool delivers_chunks_singly = false;
  bool skips_superseded_views = false;  // only the newest view is delivered
  bool drops_old_pushes = false;        // what a dead worker has sent is lost
  bool wants_replicas = false;          // the end asks for all replicas in sync, too
  bool starts_split = false;            // shard 0 has committed version 1, shard 1 has not
  int moved_shards = 0b11;              // mask: planned moves are of these
  int unread_shards = 0;                // mask: the forward does not read them (P4)
  int views_max = 9;
  Mutation mutation = Mutation::kNone;

  bool Mutated(Mutation m) const { return mutation == m; }
  // The version that the step reads. It updates version `step`.
  int VersionReadBy(int step) const { return std::max(0, step - staleness); }
  // The oldest version that a replica keeps when `newest` is its newest one.
  int OldestKept(int newest) const {
    return newest - 2 * staleness - (Mutated(Mutation::kKeepOneLess) ? 0 : 1);
  }
};

constexpr size_t kStatesMax = 40'000'000;  // about 14 GB

// The finding that the search must make in a mutated configuration.
enum class Finding { kNone, kLoss, kHang };

struct MutationCase {
  std::string_view name;
  Configuration configuration;  // its name is empty
  Finding finding = Finding::kNone;
  int trace_steps_max = 0;
  // Where the whole search is long: a hang that is found among the first states is one all the
  // same, as states that were not looked at count as good.
  size_t states_max = kStatesMax;
};

std::span<const Configuration> Configurations();
std::span<const MutationCase> MutationCases();
const Configuration* FindConfiguration(std::string_view name);
const MutationCase* FindMutationCase(std::string_view name);

}  // namespace pando::model
