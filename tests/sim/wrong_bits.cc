#include "tests/sim/wrong_bits.h"

#include <algorithm>
#include <memory>

#include "common/float_buffer.h"
#include "proto/assignment.h"

namespace pando::sim {

void WrongBits::TamperWithRoot(Root& root) {
  if (!stage_.swarm.has_divergence || has_tampered_ || population_.is_healed()) return;
  if (!stage_.world.chance().OneIn(0.05) || root.items.empty()) return;
  RootItem& item = root.items[stage_.world.chance().Below(root.items.size())];
  const auto floats = item.payload.floats();
  auto copy = std::make_shared<FloatBuffer>(floats.size());
  std::ranges::copy(floats, copy->data());
  copy->data()[0] = copy->data()[0] == 0.0f ? 1.0f : -copy->data()[0];
  item.payload = ToBlob(std::move(copy));
  has_tampered_ = true;
  checker_.journal().NoteDivergence();
  stage_.coverage.Note(Event::kDivergence);
  stage_.Note("a wrong bit goes to a backup of shard " + std::to_string(item.shard.value()));
}

bool WrongBits::FlipsBit(const Process& process, Step step, MicroBatch m) {
  if (!stage_.swarm.has_flip || flipped_ || !population_.plan().IsVerified(step, m)) return false;
  const View& view = process.member()->view();
  if (m.value() >= view.owners.size() || step.value() < 2) return false;
  if (ComputesAt(view.owners[m.value()], step) != process.self().node) return false;
  if (FindVerifier(view, step, m) == kUnknownNode || !stage_.world.chance().OneIn(0.2))
    return false;
  flipped_.emplace(step, m);
  flipper_ = &process;
  checker_.NoteFlip();
  stage_.coverage.Note(Event::kFlip);
  stage_.Note(process.seat().name + " computes step " + std::to_string(step.value()) +
              ", micro-batch " + std::to_string(m.value()) + " wrong");
  return true;
}

void WrongBits::OnUnverified(Step step, MicroBatch m) {
  if (flipped_ != std::pair(step, m)) return;
  is_unnoticed_ = true;
  stage_.coverage.Note(Event::kFlipUnnoticed);
  stage_.Note("the wrong bit of step " + std::to_string(step.value()) +
              " is not compared with any");
}

void WrongBits::OnDrained(const Process& process) {
  stage_.coverage.Note(Event::kDrained);
  if (&process == flipper_) stage_.coverage.Note(Event::kFlipDrained);
}

}  // namespace pando::sim
