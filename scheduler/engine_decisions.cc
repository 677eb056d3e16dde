#include "scheduler/engine_decisions.h"

#include <algorithm>

#include "common/mutation.h"

namespace pando {

EngineDecisions::EngineDecisions(RunFacts& run, const SchedulerOptions& options)
    : run_(run), check_(options.check_engines) {
  if (options.state) decided_ = options.state->engines;
  for (const KindEngines& of_folder : options.engines) {
    if (decided_.size() < kKindsMax && Find(of_folder.kind) == nullptr)
      decided_.push_back(of_folder);
  }
  std::ranges::sort(decided_, {}, &KindEngines::kind);
}

// Only a worker that computes nothing yet has a say.
void EngineDecisions::OnProposal(Micros now, const PeerId& from, const EngineProposal& proposal) {
  const Member& member = run_.Sender(from);
  if (member.role() != Role::kWorker || member.is_ready || !run_.plan.job.tune_engines) return;
  if (Find(proposal.kind) == nullptr) {
    if (std::string reason = ReasonToRefuse(proposal); !reason.empty())
      return run_.outbox.Send(from, Refused{std::move(reason)});
    if (!proposal.engines.empty()) Decide(now, from, proposal);
  }
  const KindEngines* decided = Find(proposal.kind);
  if (decided == nullptr) asked_[from.incarnation] = proposal.kind;
  run_.outbox.Send(from, EngineDecision{proposal.kind, decided ? decided->engines : ""});
}

std::string EngineDecisions::ReasonToRefuse(const EngineProposal& proposal) const {
  if (decided_.size() == kKindsMax)
    return fmt::format(
        "the run has GPU workers of {} kinds already, the most that it can tell apart", kKindsMax);
  if (proposal.engines.empty() || !check_) return "";
  return check_({proposal.kind, proposal.engines}).message();
}

void EngineDecisions::Decide(Micros now, const PeerId& from, const EngineProposal& proposal) {
  decided_.push_back({proposal.kind, proposal.engines});
  std::ranges::sort(decided_, {}, &KindEngines::kind);
  run_.outbox.Tell(now, "engines", run_.Sender(from).Name(),
                   "workers of the kind '{}' compute with the engines that this one has measured",
                   proposal.kind);
  if (!Mutated(Mutation::kAnnounceEnginesBeforeJournal)) run_.outbox.MarkChanged();
}

bool EngineDecisions::IsMeasuring() const {
  return std::ranges::any_of(asked_, [&](const auto& entry) {
    return run_.members().Find(entry.first) != nullptr && Find(entry.second) == nullptr;
  });
}

const KindEngines* EngineDecisions::Find(const std::string& kind) const {
  const auto it = std::ranges::find(decided_, kind, &KindEngines::kind);
  return it == decided_.end() ? nullptr : &*it;
}

}  // namespace pando
