// Mutations: faults put into the protocol by hand, to see that the simulator finds them
// (docs/testing.md). The product is compiled without them: Mutated() is then a constant false and
// leaves no trace.
#pragma once

namespace pando {

enum class Mutation {
  kNone,
  kNoDeduplication,    // P3: the aggregator adds what it has once more
  kSumInArrivalOrder,  // P2: sums run in the order of arrival, not along the tree
  kNoBarrier,          // P4: a worker sends step t + 1 before version t + 1 is committed everywhere
  kNoQuestion,           // P17: a worker does not ask what is missing when the view changes
  kNoViewStamp,          // P17: a worker takes answers to an earlier view's question
  kUninterruptibleWait,  // P12: a worker goes on waiting although work of the last step is missing
  kGiveOnce,             // P6a: what the host's relay was given is the relay's alone to push
  // The scheduler's.
  kNoPreviousOwner,         // P18: a first step stands although its previous owner is gone
  kNoIncarnations,          // P19: who registers from a known host and process is taken for it
  kStaleReport,             // P24: a report of a newcomer in sync counts whatever its pair
  kPromoteSyncing,          // P24: a replica that is not in sync is promoted
  kAnnounceBeforeJournal,   // P25: views are announced first and written a moment later
  kLeasesBeforeHeartbeats,  // P27: a late tick judges before it has read what is queued
  kNoDecisionBarrier,       // P32: steps are made whose version might not be, for a decision
  // The servers'.
  kShowUncommitted,          // P9: a lane shows a version before its backups have acknowledged it
  kCommitBeforeAck,          // P8: a primary commits without its backups' acknowledgements
  kUnequalViews,             // P13: roots and their acknowledgements count between unequal views
  kOneVersionTransfer,       // P20: only the newest version is transferred
  kNoRootResend,             // P22: a promoted replica does not resend its newest root
  kReportBeforeAck,          // P24: reported in sync when the image is over; its acks not required
  kNoPairStamp,              // P24: transfers do not name the view that made the pair
  kDropOptimizerState,       // P20: a transfer leaves the optimizer's state behind
  kNoBehind,                 // P10: no answer when the version asked for is gone
  kNoRetransmission,         // P10: pushes, roots and chunks are sent once
  kSnapshotOneVersionLate,   // P29: shard 0 stores version K + 1 as K
  kNoGeneration,             // P21: a lane keeps what it holds of an older generation
  kPartialsFromRecordsOnly,  // P16: partial values are served from records, not from the root on
  kPartialsNotInBackups,     // P16: records that backups make have no partial values
  kNoPartialsPull,           // P16: partial values are told once and not pulled
  kEncodeSums,               // P34: a worker encodes sums of micro-batches, not each for itself
  kSkipAlone,                // P14: a shard skips a step where its own gradient overflows, or not
  kKeepWaitingDropped,       // P24: a primary stops waiting for a silent backup by itself
  kNoSequenceCheck,          // P42: a reader reads whatever lies in the slot by now
  kRewriteHeldSlot,          // P42: a slot is written again while a reader holds it
};

#ifdef PANDO_MUTATIONS
inline Mutation active_mutation =
    Mutation::kNone;  // set by the simulator's main, before any thread
inline bool Mutated(Mutation m) { return active_mutation == m; }
#else
constexpr bool Mutated(Mutation) { return false; }
#endif

}  // namespace pando
