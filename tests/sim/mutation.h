// Mutations are deliberate faults of the protocol, which the simulator must find (docs/testing.md).
// The product has none. tests/sim/mutants puts them into copies of its sources, which include this.
#pragma once

namespace pando {

enum class Mutation {
  kNone,
  kNoDeduplication,      // P3: the aggregator adds a held contribution again
  kSumInArrivalOrder,    // P2: sums run in the order of arrival, not along the tree
  kNoBarrier,            // P4: a worker sends a step before what it reads is committed everywhere
  kNoQuestion,           // P17: a worker does not ask for the missing parts in a new view
  kUninterruptibleWait,  // P12: a worker keeps waiting although work of the last step is missing
  kGiveOnce,             // P6a: only a relay pushes the gradients that it was given
  kKeepStrayGifts,       // P6a: a relay keeps gifts of shards that it does not sum
  kGiftProvesItsUpdate,  // P4: a relay takes the version that a gift updates for committed
  kNoWayBack,            // P6: what comes late for an earlier step is not sent
  kAnyRole,              // P44: lanes, workers and the scheduler accept any message of any member
  kStrangers,            // P44: lanes and workers accept messages of processes that are no members
  kAnyView,              // P44: lanes and workers enter views without a good signature
  // In the scheduler:
  kNoPreviousOwner,         // P18: a first step holds although its previous owner is gone
  kNoIncarnations,          // P19: a new incarnation of a host and process is taken for the old one
  kPromoteSyncing,          // P24: a replica that is not in sync is promoted
  kAnnounceBeforeJournal,   // P25: views are announced before they are written
  kLeasesBeforeHeartbeats,  // P27: a late tick judges leases before it reads the queue
  kNoDecisionBarrier,       // P32: steps run although a decision may exclude their version
  kReportUnanswered,        // P31a: an evaluation is over before its report is answered
  kEndWithoutSnapshot,      // P33: a run that is stopped stores nothing first
  kAnySupplier,             // P43: parts of a declaration count from any worker
  kMixSuppliers,            // P43: a new supplier goes on where the last one ended
  kKeepSupplier,            // P43: no worker takes a dead supplier's place
  kAnySignOfLife,           // P44: a message that its sender may not send renews its lease
  kAnyNews,                 // P26: a view without a good signature counts as lost
  // P46: the scheduler believes a member's message about
  kAnyPrimary,          // shards that another lane leads
  kAnyReplica,          // shards of which it has no replica
  kAnyHolder,           // snapshots of shards that it never held
  kAnySlice,            // slices of the test set that another worker has
  kAnyHash,             // micro-batches that it neither owns nor verifies
  kAnyRow,              // metric rows of shards and versions that are not its own
  kAnySnapshotVersion,  // versions that no shard can have, or that no server was asked for
  kLateRestore,         // a snapshot that was restored already
  kAckBeforeCopy,       // P47: a row is acknowledged before the standby has it
  kManifestBeforeCopy,  // P47: a manifest is committed before the standby has its files
  // In the servers:
  kShowUncommitted,     // P9: a lane shows a version before its backups have acknowledged it
  kCommitBeforeAck,     // P8: a primary commits without its backups' acknowledgements
  kOneVersionTransfer,  // P20: only the newest version is transferred
  kTooFewVersions,      // P4: a replica keeps one version less
  kLaterNodesAsNodes,   // P17: an answer names the next step's nodes as those of the step
  kRestoreNewestAlone,  // P29: a restored shard lacks the version before
  kNoRootResend,        // P22: a promoted replica does not resend its newest root
  kReportBeforeAck,     // P24: newcomers are reported in sync before acknowledgements are required
  kDropOptimizerState,  // P20: a transfer omits the optimizer's state
  kNoBehind,            // P10: a lane gives no answer if the requested version is gone
  kNoRetransmission,    // P10: pushes, roots and chunks are sent once
  kSnapshotOneVersionLate,   // P29: shard 0 stores version K + 1 as K
  kNoGeneration,             // P21: a lane keeps data of an older generation
  kPartialsFromRecordsOnly,  // P16: partial values are served only from records
  kPartialsNotInBackups,     // P16: a backup's records have no partial values
  kNoPartialsPull,           // P16: partial values are sent once and not pulled
  kAnyBase,                  // P17a: a difference is applied to any view
  kNoViewWanted,             // P13, P17a: a member never asks for a view
  kCountTwice,               // P16: sums and values count although one of their shards has counted
  kEncodeSums,               // P34: a worker encodes sums of micro-batches, not each one
  kSkipAlone,           // P14: a shard skips a step if its own gradient overflows, and only then
  kKeepWaitingDropped,  // P24: a primary stops waiting for a silent backup without a new view
  kNoSequenceCheck,     // P42: a reader ignores the slot's sequence
  kRewriteHeldSlot,     // P42: a slot is reused while a reader holds it
  kVoteOfOne,           // P8: one replica's word tells which of three is wrong
  kImageUnchecked,      // P20: a newcomer may have another record than its source had made
  kStoredUnchecked,     // P29: a snapshot is complete although a file holds other bits
};

inline Mutation active_mutation =
    Mutation::kNone;  // set by the simulator's main, before any thread
inline bool Mutated(Mutation m) { return active_mutation == m; }

}  // namespace pando
