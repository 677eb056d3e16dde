// MessageNotes: the events of the coverage that only messages show. Part of Checker.
#pragma once

#include <map>
#include <utility>

#include "tests/sim/check/disturbances.h"
#include "tests/sim/coverage.h"

namespace pando::sim {

class MessageNotes {
 public:
  // All outlive it.
  MessageNotes(const JobPlan& plan, const Processes& processes, Coverage& coverage)
      : plan_(plan), processes_(processes), coverage_(coverage) {}

  // `view`: the journal's newest, if there is one.
  void OnSent(const Envelope& envelope, const std::optional<View>& view);

 private:
  void NoteSpeculation(const Envelope& envelope, const Push& push, const View& view);
  void NoteCodecs(const Envelope& envelope);
  void NoteGift(const Envelope& envelope);
  void NoteFeedback(const Envelope& envelope, const Push& push);
  bool GoesTo(const Envelope& envelope, Role role) const;

  const JobPlan& plan_;
  const Processes& processes_;
  Coverage& coverage_;
  // With error feedback: of which step a micro-batch's newest gradient is, and whose.
  std::map<MicroBatch, std::pair<Step, Incarnation>> newest_pushes_;
};

}  // namespace pando::sim
