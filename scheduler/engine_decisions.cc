#include "scheduler/engine_decisions.h"

#include <algorithm>

#include "common/mutation.h"

namespace pando {
namespace {

// P25 left out: how long a decision is announced before it is in the journal.
constexpr Micros kLateJournal = std::chrono::milliseconds(100);

}  // namespace

EngineDecisions::EngineDecisions(RunFacts& run, const SchedulerOptions& options) : run_(run) {
  if (options.state) decided_ = options.state->engines;
  for (const KindEngines& of_folder : options.engines) {
    if (decided_.size() < kKindsMax && Find(of_folder.kind) == nullptr)
      decided_.push_back(of_folder);
  }
  std::ranges::sort(decided_, {}, &KindEngines::kind);
}

void EngineDecisions::OnProposal(Micros now, const PeerId& from, const EngineProposal& proposal) {
  if (Find(proposal.kind) == nullptr && !proposal.engines.empty() && !Decide(now, from, proposal))
    return;
  const KindEngines* decided = Find(proposal.kind);
  run_.outbox.Send(from, EngineDecision{proposal.kind, decided ? decided->engines : ""});
}

// Returns false if the worker is refused.
bool EngineDecisions::Decide(Micros now, const PeerId& from, const EngineProposal& proposal) {
  if (decided_.size() == kKindsMax) {
    run_.outbox.Send(from, Refused{fmt::format("the run has GPU workers of {} kinds already, the "
                                               "most that it can tell apart",
                                               kKindsMax)});
    return false;
  }
  decided_.push_back({proposal.kind, proposal.engines});
  std::ranges::sort(decided_, {}, &KindEngines::kind);
  run_.outbox.Tell(now, "engines", run_.Sender(from).Name(),
                   "workers of the kind '{}' compute with the engines that this one has measured",
                   proposal.kind);
  if (Mutated(Mutation::kAnnounceEnginesBeforeJournal)) {
    held_back_ = proposal.kind;
    written_at_ = now + kLateJournal;
  } else {
    run_.outbox.MarkChanged();
  }
  return true;
}

void EngineDecisions::Tick(Micros now) {
  if (!written_at_ || now < *written_at_) return;
  written_at_.reset();
  run_.outbox.MarkChanged();
}

std::vector<KindEngines> EngineDecisions::ForJournal() const {
  std::vector<KindEngines> written = decided_;
  if (written_at_)
    std::erase_if(written, [&](const KindEngines& entry) { return entry.kind == held_back_; });
  return written;
}

const KindEngines* EngineDecisions::Find(const std::string& kind) const {
  const auto it = std::ranges::find(decided_, kind, &KindEngines::kind);
  return it == decided_.end() ? nullptr : &*it;
}

}  // namespace pando
