#include "tests/sim/check/checker.h"

#include <utility>

#include "tests/sim/trace.h"

namespace pando::sim {

void Checker::OnSent(const Envelope& envelope) {
  if (const auto* push = std::get_if<Push>(&envelope.message)) versions_.CheckPush(envelope, *push);
  if (const auto* params = std::get_if<Params>(&envelope.message))
    versions_.CheckParams(envelope, *params);
  if (const auto* update = std::get_if<ViewUpdate>(&envelope.message)) CheckView(update->view);
  if (const auto* delta = std::get_if<ViewDelta>(&envelope.message))
    CheckViewHash(delta->change->id, delta->change->hash);
  if (const auto* evaluate = std::get_if<Evaluate>(&envelope.message))
    results_.CheckReport(*evaluate, versions_.generation());
  if (const auto* result = std::get_if<EvaluationResult>(&envelope.message))
    results_.NoteAnswer(*result);
  if (const auto* synced = std::get_if<Synced>(&envelope.message)) journal_.NoteSynced(*synced);
  if (const auto* silent = std::get_if<PeerSilent>(&envelope.message))
    disturbances_.CheckSilence(envelope, *silent);
  notes_.OnSent(envelope, versions_.view());
}

void Checker::OnEntered(const PeerId& member, const View& view) {
  ViewId& entered = entered_[{member.incarnation, member.lane}];
  if (std::exchange(entered, view.id) != view.id) CheckView(view);
}

// I3: an id names one view, for any sender and any member.
void Checker::CheckView(const SharedView& view) { CheckViewHash(view->id, view.hash()); }

void Checker::CheckViewHash(ViewId id, uint64_t hash) {
  const auto [it, is_new] = view_hashes_.try_emplace(id, hash);
  if (!is_new && it->second != hash)
    verdict_.Fail("I3: two views are called " + Text(id.term) + "." + Text(id.number));
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
