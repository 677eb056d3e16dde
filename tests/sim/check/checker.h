// Checker looks at everything that is sent, written and done, and knows the invariants
// (docs/protocol.md). The first breach ends the seed.
#pragma once

#include <map>
#include <optional>

#include "tests/sim/check/disturbances.h"
#include "tests/sim/check/journal_checker.h"
#include "tests/sim/check/message_notes.h"
#include "tests/sim/check/result_checker.h"
#include "tests/sim/check/verdict.h"
#include "tests/sim/check/version_checker.h"

namespace pando::sim {

class Checker {
 public:
  Checker(const Disturbances::Around& around, const Reference& reference, Coverage& coverage)
      : verdict_(around.world),
        truth_(around.plan, reference),
        disturbances_(around, verdict_),
        versions_(truth_, around.processes, verdict_),
        journal_(
            {truth_, around.disk, around.processes, disturbances_, versions_, coverage, verdict_}),
        results_(truth_, coverage, verdict_),
        notes_(around.plan, around.processes, coverage),
        coverage_(coverage) {}

  void OnSent(const Envelope& envelope);
  // A lane or a worker is in this view.
  void OnEntered(const PeerId& member, const View& view);
  void OnLost(const Process& process);  // killed
  void OnLeft(const Process& process);
  void OnEvaluation(const EvaluationSummary& summary);
  void CheckEnd(const SchedulerState& state);
  // The journal has lost a view: its generation has no rules until a rollback ends it.
  void NoteLostView() {
    truth_.Taint(versions_.generation());
    versions_.NoteLostView();
    results_.NoteMayLackRows();
  }
  // A worker has computed wrong bits.
  void NoteFlip() { truth_.Taint(versions_.generation()); }

  Verdict& verdict() { return verdict_; }
  Disturbances& disturbances() { return disturbances_; }
  VersionChecker& versions() { return versions_; }
  JournalChecker& journal() { return journal_; }
  ResultChecker& results() { return results_; }
  const ResultChecker& results() const { return results_; }

 private:
  void CheckView(const SharedView& view);
  void CheckViewHash(ViewId id, uint64_t hash);

  Verdict verdict_;
  Truth truth_;
  Disturbances disturbances_;
  VersionChecker versions_;
  JournalChecker journal_;
  ResultChecker results_;
  MessageNotes notes_;
  Coverage& coverage_;
  std::map<ViewId, uint64_t> view_hashes_;  // I3: one view for each id
  std::map<std::pair<Incarnation, uint16_t>, ViewId> entered_;
};

}  // namespace pando::sim
