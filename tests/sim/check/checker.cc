#include "tests/sim/check/checker.h"

#include "common/hash.h"
#include "tests/sim/trace.h"

namespace pando::sim {

void Checker::OnSent(const Envelope& envelope) {
  if (const auto* push = std::get_if<Push>(&envelope.message)) versions_.CheckPush(envelope, *push);
  if (const auto* params = std::get_if<Params>(&envelope.message))
    versions_.CheckParams(envelope, *params);
  if (const auto* update = std::get_if<ViewUpdate>(&envelope.message)) CheckView(update->view);
  if (const auto* synced = std::get_if<Synced>(&envelope.message)) journal_.NoteSynced(*synced);
  if (const auto* silent = std::get_if<PeerSilent>(&envelope.message))
    disturbances_.CheckSilence(envelope, *silent);
  notes_.OnSent(envelope, versions_.view());
}

// I3: an id names one view, for any sender.
void Checker::CheckView(const View& view) {
  const uint64_t hash = Hash64(ViewText(view));
  const auto [it, is_new] = view_hashes_.try_emplace(view.id, hash);
  if (!is_new && it->second != hash) {
    verdict_.Fail("I3: two views are called " + Text(view.id.term) + "." + Text(view.id.number));
  }
}

void Checker::OnLost(const Process& process) {
  if (process.seat().role != Role::kServer) return;
  if (disturbances_.is_scheduler_away()) results_.NoteMayLackRows();
  versions_.CheckAllHeld();
}

// P33: a server leaves once no shard names it.
void Checker::OnLeft(const Process& process) {
  if (process.seat().role == Role::kServer) versions_.CheckAllHeld();
}

void Checker::OnEvaluation(const EvaluationSummary& summary) {
  coverage_.Note(Event::kEvaluation);
  results_.CheckEvaluation(summary, versions_.generation());
}

void Checker::CheckEnd(const SchedulerState& state) {
  results_.CheckEnd(state);
  for (const EvaluationSummary& summary : state.evaluations)
    results_.CheckEvaluation(summary, versions_.generation());
}

}  // namespace pando::sim
