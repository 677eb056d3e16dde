#include "tests/sim/check/message_notes.h"

#include <algorithm>
#include <tuple>

#include "proto/assignment.h"

namespace pando::sim {

void MessageNotes::OnSent(const Envelope& envelope, const std::optional<View>& view) {
  const auto* push = std::get_if<Push>(&envelope.message);
  const bool is_noted = coverage_.Has(Event::kSpeculation) || coverage_.Has(Event::kHostSum);
  if (push != nullptr && view && !is_noted) NoteSpeculation(envelope, *push, *view);
  NoteCodecs(envelope);
  if (plan_.may_sum_near()) NoteGift(envelope);
}

bool MessageNotes::GoesTo(const Envelope& envelope, Role role) const {
  const Process* receiver = FindProcess(processes_, envelope.receiver.incarnation);
  return receiver != nullptr && receiver->seat().role == role;
}

void MessageNotes::NoteSpeculation(const Envelope& envelope, const Push& push, const View& view) {
  if (view.id != envelope.view || push.items.empty()) return;
  const PushItem& item = push.items.front();
  if (!GoesTo(envelope, Role::kServer)) return;
  const MicroBatchTree tree = plan_.steps.Tree(item.step);
  const std::vector<MicroBatch> own = AssignedTo(view, envelope.sender.node, item.step, tree);
  const MicroBatchRange range = tree.Range(item.node);
  for (uint32_t m = range.first; m < range.last; ++m) {
    const bool is_own = std::ranges::find(own, MicroBatch(m)) != own.end();
    if (!tree.IsPresent(MicroBatch(m)) || is_own) continue;
    return coverage_.Note(plan_.may_sum_near() ? Event::kHostSum : Event::kSpeculation);
  }
}

// P6a.
void MessageNotes::NoteGift(const Envelope& envelope) {
  if (!GoesTo(envelope, Role::kWorker)) return;
  if (std::holds_alternative<Push>(envelope.message)) coverage_.Note(Event::kGiven);
  if (std::holds_alternative<Question>(envelope.message)) coverage_.Note(Event::kRelayAsked);
}

void MessageNotes::NoteCodecs(const Envelope& envelope) {
  const auto note = [this](Event first, PayloadCodec codec) {
    const auto index = static_cast<size_t>(codec) - static_cast<size_t>(PayloadCodec::kFp16);
    coverage_.Note(static_cast<Event>(static_cast<size_t>(first) + index));
  };
  if (const auto* push = std::get_if<Push>(&envelope.message); push && !plan_.pushes.is_exact()) {
    note(Event::kFp16Pushes, plan_.job.push_codec);
    if (plan_.pushes.has_feedback()) NoteFeedback(envelope, *push);
  }
  if (const auto* params = std::get_if<Params>(&envelope.message);
      params && !plan_.pulls.is_exact()) {
    const auto is_encoded = [](const ParamsItem& item) {
      return item.form == ParamsForm::kEncoded;
    };
    if (std::ranges::any_of(params->items, is_encoded))
      note(Event::kFp16Pulls, plan_.job.pull_codec);
  }
}

void MessageNotes::NoteFeedback(const Envelope& envelope, const Push& push) {
  for (const PushItem& item : push.items) {
    const MicroBatch m(plan_.steps.Tree(item.step).Range(item.node).first);
    const std::pair now(item.step, envelope.sender.incarnation);
    auto& [step, worker] = newest_pushes_.try_emplace(m, now).first->second;
    if (NextStep(step) == item.step)
      coverage_.Note(worker == now.second ? Event::kFeedback : Event::kFeedbackGone);
    if (step < item.step) std::tie(step, worker) = now;
  }
}

}  // namespace pando::sim
