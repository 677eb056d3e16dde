#include "tests/sim/wrong_bits.h"

#include <algorithm>
#include <memory>

#include "common/float_buffer.h"
#include "proto/assignment.h"

namespace pando::sim {

void WrongBits::TamperWithRoot(Envelope& envelope) {
  auto& root = std::get<Root>(envelope.message);
  if (!stage_.swarm.has_divergence || has_tampered_ || population_.is_healed()) return;
  if (!stage_.world.chance().OneIn(0.05) || root.items.empty()) return;
  RootItem& item = root.items[stage_.world.chance().Below(root.items.size())];
  const auto floats = item.payload.floats();
  if (floats.empty()) return;  // a question (P22)
  auto copy = std::make_shared<FloatBuffer>(floats.size());
  std::ranges::copy(floats, copy->data());
  copy->data()[0] = copy->data()[0] == 0.0f ? 1.0f : -copy->data()[0];
  item.payload = ToBlob(std::move(copy));
  has_tampered_ = true;
  checker_.journal().NoteDivergence();
  checker_.journal().NoteWrongMemory(envelope.receiver.incarnation);
  stage_.coverage.Note(Event::kDivergence);
  stage_.Note("a wrong bit goes to a backup of shard " + std::to_string(item.shard.value()));
}

// Nothing is flipped that a primary may send before the root: parameters, which workers read (P41
// finds what they then compute), and partial values in the state, which other shards use. A backup
// may be promoted before it has made another version.
void WrongBits::FlipMemory(const Process& process, const Lane& lane) {
  if (!stage_.swarm.has_memory_flip || has_tampered_ || population_.is_healed()) return;
  if (!lane.has_view() || !stage_.world.chance().OneIn(0.01)) return;
  for (const auto& [id, replica] : lane.replicas()) {
    const ShardPlacement& placement = lane.view().shards[id.value()];
    const bool is_named = replica.role() != ReplicaRole::kSyncing;
    if (!is_named || placement.in_sync_backups.size() < 2 || !replica.shard.has_data()) continue;
    const bool may_lead = replica.is_primary() || stage_.swarm.fault_count > 0;
    if (may_lead && HasPartials(population_.plan().job.optimizer)) continue;
    const VersionRecord& record = replica.shard.records().newest();
    const SharedBuffer& memory = may_lead ? record.state : record.parameters;
    if (record.version < Version(2) || memory->size() == 0) continue;
    float& value = const_cast<FloatBuffer&>(*memory).data()[0];
    value = value == 0.0f ? 1.0f : -value;
    has_tampered_ = true;
    if (may_lead) checker_.journal().NoteDivergence();
    checker_.journal().NoteWrongMemory(process.incarnation());
    stage_.coverage.Note(Event::kMemoryFlip);
    return stage_.Note(process.seat().name + " has a wrong bit in version " +
                       std::to_string(record.version.value()) + " of shard " +
                       std::to_string(id.value()));
  }
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
