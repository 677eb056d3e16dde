#include "tests/sim/mutations.h"

#include <array>

namespace pando::sim {
namespace {

constexpr std::array kMutations{
    NamedMutation{"no-deduplication", Mutation::kNoDeduplication},
    NamedMutation{"sum-in-arrival-order", Mutation::kSumInArrivalOrder},
    NamedMutation{"no-barrier", Mutation::kNoBarrier},
    NamedMutation{"no-question", Mutation::kNoQuestion},
    NamedMutation{"uninterruptible-wait", Mutation::kUninterruptibleWait},
    NamedMutation{"give-once", Mutation::kGiveOnce},
    NamedMutation{"keep-stray-gifts", Mutation::kKeepStrayGifts},
    NamedMutation{"gift-proves-its-update", Mutation::kGiftProvesItsUpdate},
    NamedMutation{"no-way-back", Mutation::kNoWayBack},
    NamedMutation{"any-role", Mutation::kAnyRole},
    NamedMutation{"strangers", Mutation::kStrangers},
    NamedMutation{"any-view", Mutation::kAnyView},
    NamedMutation{"any-news", Mutation::kAnyNews},
    NamedMutation{"no-previous-owner", Mutation::kNoPreviousOwner},
    NamedMutation{"no-incarnations", Mutation::kNoIncarnations},
    NamedMutation{"promote-syncing", Mutation::kPromoteSyncing},
    NamedMutation{"announce-before-journal", Mutation::kAnnounceBeforeJournal},
    NamedMutation{"leases-before-heartbeats", Mutation::kLeasesBeforeHeartbeats},
    NamedMutation{"no-decision-barrier", Mutation::kNoDecisionBarrier},
    NamedMutation{"report-unanswered", Mutation::kReportUnanswered},
    NamedMutation{"end-without-snapshot", Mutation::kEndWithoutSnapshot},
    NamedMutation{"any-supplier", Mutation::kAnySupplier},
    NamedMutation{"mix-suppliers", Mutation::kMixSuppliers},
    NamedMutation{"keep-supplier", Mutation::kKeepSupplier},
    NamedMutation{"any-sign-of-life", Mutation::kAnySignOfLife},
    NamedMutation{"show-uncommitted", Mutation::kShowUncommitted},
    NamedMutation{"commit-before-ack", Mutation::kCommitBeforeAck},
    NamedMutation{"one-version-transfer", Mutation::kOneVersionTransfer},
    NamedMutation{"too-few-versions", Mutation::kTooFewVersions},
    NamedMutation{"later-nodes-as-nodes", Mutation::kLaterNodesAsNodes},
    NamedMutation{"restore-newest-alone", Mutation::kRestoreNewestAlone},
    NamedMutation{"no-root-resend", Mutation::kNoRootResend},
    NamedMutation{"report-before-ack", Mutation::kReportBeforeAck},
    NamedMutation{"drop-optimizer-state", Mutation::kDropOptimizerState},
    NamedMutation{"no-behind", Mutation::kNoBehind},
    NamedMutation{"no-retransmission", Mutation::kNoRetransmission},
    NamedMutation{"snapshot-one-version-late", Mutation::kSnapshotOneVersionLate},
    NamedMutation{"no-generation", Mutation::kNoGeneration},
    NamedMutation{"partials-from-records-only", Mutation::kPartialsFromRecordsOnly},
    NamedMutation{"partials-not-in-backups", Mutation::kPartialsNotInBackups},
    NamedMutation{"no-partials-pull", Mutation::kNoPartialsPull},
    NamedMutation{"any-base", Mutation::kAnyBase},
    NamedMutation{"no-view-wanted", Mutation::kNoViewWanted},
    NamedMutation{"count-twice", Mutation::kCountTwice},
    NamedMutation{"encode-sums", Mutation::kEncodeSums},
    NamedMutation{"skip-alone", Mutation::kSkipAlone},
    NamedMutation{"keep-waiting-dropped", Mutation::kKeepWaitingDropped},
    NamedMutation{"no-sequence-check", Mutation::kNoSequenceCheck},
    NamedMutation{"rewrite-held-slot", Mutation::kRewriteHeldSlot},
    NamedMutation{"any-primary", Mutation::kAnyPrimary},
    NamedMutation{"any-replica", Mutation::kAnyReplica},
    NamedMutation{"any-holder", Mutation::kAnyHolder},
    NamedMutation{"any-slice", Mutation::kAnySlice},
    NamedMutation{"any-hash", Mutation::kAnyHash},
    NamedMutation{"any-row", Mutation::kAnyRow},
    NamedMutation{"any-snapshot-version", Mutation::kAnySnapshotVersion},
    NamedMutation{"late-restore", Mutation::kLateRestore},
    NamedMutation{"ack-before-copy", Mutation::kAckBeforeCopy},
    NamedMutation{"manifest-before-copy", Mutation::kManifestBeforeCopy},
    NamedMutation{"vote-of-one", Mutation::kVoteOfOne},
    NamedMutation{"image-unchecked", Mutation::kImageUnchecked},
    NamedMutation{"stored-unchecked", Mutation::kStoredUnchecked},
};

}  // namespace

std::span<const NamedMutation> Mutations() { return kMutations; }

}  // namespace pando::sim
