// Coverage: which events the seeds have reached. A simulation is blind to events that never happen.
#pragma once

#include <array>
#include <cstdint>

#include "tests/sim/network.h"
#include "tests/sim/swarm.h"

namespace pando::sim {

enum class Event : uint8_t {
  kPromotion,         // a shard has a new primary
  kTransfer,          // a newcomer came in sync
  kRollback,          // a generation more
  kRollbackToStored,  // from files, not from the seed
  kMoveUndone,        // a newcomer or its source died before it was in sync
  kSchedulerRestart,
  kUncommittedDeath,  // the scheduler died within a journal commit
  kFence,             // a scheduler was shut out by its successor
  kResume,
  kDrained,
  kRejoin,          // a process came back under a new incarnation
  kFalseSuspicion,  // a living process was given up
  kNoWorker,        // a view without any
  kSpeculation,     // a worker pushed what another owns
  kSnapshot,
  kSnapshotFailure,
  kEvaluation,
  kReport,  // P31a
  kEarlyStop,
  kDivergence,
  kMemoryFlip,
  kOutvoted,
  kFlip,
  kFlipDrained,
  kFlipUnnoticed,
  kLayers,     // workers held a layer's parameters at a time
  kScaling,    // steps with an overflow were skipped
  kRowGap,     // metric rows lost with servers while the scheduler was away
  kShared,     // payloads were read in their sender's memory
  kOvertaken,  // ... and some had been written again by then
  // Encoded payloads that were sent (P34), in the order of PayloadCodec.
  kFp16Pushes,
  kBf16Pushes,
  kInt8Pushes,
  kOneBitPushes,
  kTopKPushes,
  kFp16Pulls,
  kBf16Pulls,
  kInt8Pulls,
  kFeedback,      // what a gradient lost was added to the micro-batch's next one
  kFeedbackGone,  // ... or not, as another worker computed that
  kGiven,         // a gradient went to a relay of its host or rack
  kHostSum,       // ... which pushed more than it owns
  kRelayAsked,    // ... and was silent for a while
  kStopped,       // a run was stopped, with its last steps in a snapshot
  kHostilePeer,
  kForgedView,  // was dropped
  kTakeover,    // a standby led, with its copy of the run folder
  kLostView,    // a member had a view that the journal had lost, or its successor's
  kCount
};
inline constexpr size_t kEventCount = static_cast<size_t>(Event::kCount);
const char* EventName(Event event);

struct Coverage {
  std::array<uint64_t, kEventCount> events{};
  std::array<uint64_t, kFaultKindCount> faults{};
  std::array<uint64_t, kMessageKindCount> messages{};

  void Note(Event event) { ++events[static_cast<size_t>(event)]; }
  bool Has(Event event) const { return events[static_cast<size_t>(event)] > 0; }
  // Counts each thing once, if it was met at all.
  void AddSeed(const Coverage& seed);
};

}  // namespace pando::sim
