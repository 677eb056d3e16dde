#include "worker/push_sender.h"

#include "common/mutation.h"
#include "proto/message_limits.h"

namespace pando {

PushSender::PushSender(const SessionPart& part, const Parts& parts, size_t window_bytes)
    : SessionPart(part),
      parts_(parts),
      // Where the update needs a value of all shards (P14), none is committed before all are in.
      window_(HasPartials(plan_.job.optimizer) ? SIZE_MAX : window_bytes) {}

void PushSender::EnterView(const View& view) {
  window_.Clear();
  shard_counts_.clear();
  for (uint32_t s = 0; s < view.shards.size(); ++s) {
    const PeerId& lane = view.shards[s].primary;
    ++shard_counts_[lane];
    window_.Add(lane, plan_.pushes.PayloadBytes(ShardId(s)));
  }
  const size_t given_count = parts_.giver.shard_count();
  if (given_count > 0) shard_counts_[parts_.giver.relay()] = given_count;
}

void PushSender::Tick(Micros now) {
  parts_.relay.BeginLook();
  if (!gradients_.HasUnsent()) return window_.Rest();
  for (auto& [key, parcel] : Gather(now)) {
    const auto& [receiver, step] = key;
    if (IsWorthSending(receiver, step, parcel)) Send(now, receiver, step, std::move(parcel));
  }
}

// The unsent pushes that may go, by receiver: from the back of the model, which backward finishes
// first, and once it is over from the front, which the next forward reads first.
PushSender::Parcels PushSender::Gather(Micros now) {
  Parcels parcels;
  const Step step_to_make = versions_.lowest_incomplete();
  const Version lacking = VersionMadeBy(step_to_make);
  const size_t gradients_of_ours = parts_.steps.GradientsOfEachShard(step_to_make);
  const uint32_t shard_count = static_cast<uint32_t>(versions_.shard_count());
  std::vector<bool> are_gathered(shard_count);
  const auto look_at = [&](uint32_t s) {
    const ShardId id(s);
    if (!are_gathered[s]) are_gathered[s] = GatherShard(now, id, &parcels);
    if (versions_.known(id) >= lacking) return;
    const bool is_all_here = parts_.relay.Sums(id)
                                 ? IsAllHere(id, step_to_make)
                                 : gradients_.shard(id).size() >= gradients_of_ours;
    window_.Pass(parts_.lanes.primary(id), id, plan_.pushes.PayloadBytes(id), is_all_here);
  };
  // A lane may wait for another worker for a quarter of a step while it carries nothing of ours.
  window_.Begin(now, lacking, Patience(4));
  if (parts_.steps.IsComputed(step_to_make)) {
    window_.From(PushWindow::kFirst);
    for (uint32_t s = 0; s < shard_count; ++s) look_at(s);
  }
  window_.From(PushWindow::kLast);
  for (uint32_t s = shard_count; s-- > 0;) look_at(s);
  window_.End();
  return parcels;
}

// True if something of the shard may go.
bool PushSender::GatherShard(Micros now, ShardId shard, Parcels* parcels) {
  const bool is_given = parts_.giver.Gives(shard);
  const PeerId& receiver = is_given ? parts_.giver.relay() : parts_.lanes.primary(shard);
  const std::vector<UnrepliedGradient>& gradients = gradients_.shard(shard);
  bool has_gathered = false;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const UnrepliedGradient& gradient = gradients[i];
    if (!gradient.is_unsent() || !IsBarrierOpen(gradient.step)) continue;
    // A sum waits for those of the host's other workers for a step (P6a).
    const bool may_leave = is_given || (parts_.relay.MayLeave(now, shard, gradient, Patience(1)) &&
                                        window_.Admits(receiver));
    if (!may_leave) continue;
    Parcel& parcel = (*parcels)[{receiver, gradient.step}];
    parcel.items.push_back({shard, gradient.step, gradient.node, gradient.payload});
    parcel.bytes += gradient.payload.size_bytes();
    parcel.shards.insert(shard);
    parcel.gradients.push_back({shard, i});
    has_gathered = true;
  }
  return has_gathered;
}

// P4: nothing of step t + 1 is sent before version t + 1 of every shard is known to be committed.
bool PushSender::IsBarrierOpen(Step step) const {
  return VersionReadBy(step) <= versions_.everywhere() || Mutated(Mutation::kNoBarrier);
}

// On a relay: whether all that is ours of the step is here, to be pushed or in a sum with others'
// parts.
bool PushSender::IsAllHere(ShardId shard, Step step) const {
  const Steps::Work* work = parts_.steps.Find(step);
  if (work == nullptr) return true;
  const MicroBatchTree tree = plan_.steps.Tree(step);
  return std::ranges::all_of(work->issued, [&](MicroBatch m) {
    return std::ranges::any_of(gradients_.shard(shard), [&](const auto& gradient) {
      if (gradient.step != step) return false;
      const MicroBatchRange range = tree.Range(gradient.node);
      return m.value() >= range.first && m.value() < range.last;
    });
  });
}

// A part of the usual step. It is over before a late worker gets help, which begins after three
// steps.
Micros PushSender::Patience(int64_t divisor) const {
  const Micros usual = parts_.clock.usual().value_or(Micros::max());
  return std::min(usual / divisor, PushWindow::kPatienceMax);
}

// A parcel is sent when it has all shards of the receiver, or enough bytes, or when no company can
// come.
bool PushSender::IsWorthSending(const PeerId& receiver, Step step, const Parcel& parcel) const {
  const bool is_whole = parcel.shards.size() == shard_counts_.at(receiver);
  return is_whole || parcel.bytes >= kFlushBytes || parts_.steps.IsComputed(step);
}

void PushSender::Send(Micros now, const PeerId& receiver, Step step, Parcel parcel) {
  const bool is_given = parts_.giver.IsOurRelay(receiver);
  for (const auto& [shard, index] : parcel.gradients) {
    gradients_.MarkSent(shard, index, is_given ? Delivery::kGiven : Delivery::kPushed);
    parts_.requests.OnAsked(now, shard, VersionMadeBy(step));
  }
  if (is_given) {
    parts_.giver.OnGiven(now);
    bytes_.given += parcel.bytes;
  } else {
    parts_.requests.Expect(now, receiver);
    bytes_.pushed += parcel.bytes;
    if (!parts_.steps.IsComputed(step)) bytes_.early += parcel.bytes;
  }
  for (auto& items : InMessages(std::move(parcel.items)))
    parts_.lanes.Send(receiver, Push{std::move(items)});
}

}  // namespace pando
