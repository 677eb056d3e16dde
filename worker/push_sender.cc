#include "worker/push_sender.h"

#include <algorithm>

#include "proto/item_messages.h"

namespace pando {
namespace {

std::vector<size_t> GradientBytes(const JobPlan& plan) {
  std::vector<size_t> bytes;
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s)
    bytes.push_back(plan.pushes.PayloadBytes(ShardId(s)));
  return bytes;
}

}  // namespace

// If the update needs a value of all shards (P14), none is committed before all are complete, so
// that a window would never move.
PushSender::PushSender(const SessionPart& part, const Parts& parts,
                       std::optional<size_t> window_bytes)
    : SessionPart(part),
      parts_(parts),
      groups_(std::min(window_bytes.value_or(SIZE_MAX), PushGroups::kBytesMax)),
      window_(GradientBytes(plan_),
              HasPartials(plan_.job.optimizer) ? std::optional(SIZE_MAX) : window_bytes) {}

void PushSender::Tick(Micros now) {
  look_again_at_ = kNever;
  FollowSteps();
  if (!groups_.has_ready()) return window_.Rest();
  std::map<size_t, Parcel> parcels;  // by receiver
  for (const size_t index : ChooseGroups(now)) {
    const PushGroups::Group& group = groups_.group(index);
    Gather(now, group, &parcels[group.receiver]);
  }
  // Workers begin at different places among the lanes, so that not all of them send to one first.
  const size_t receiver_count = groups_.receivers().size();
  const auto ours = parcels.lower_bound(PlaceAmong(receiver_count, member_.self().node));
  const auto send = [&](auto& entry) {
    if (!entry.second.items.empty())
      Send(now, groups_.receivers()[entry.first], std::move(entry.second));
  };
  std::for_each(ours, parcels.end(), send);
  std::for_each(parcels.begin(), ours, send);
}

// ---- what is ready -----------------------------------------------------------------------------

void PushSender::CutGroups() {
  std::vector<PushGroups::Receiver> all;
  std::map<PeerId, size_t> indices;
  std::vector<size_t> receivers;
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    const PeerId* relay = parts_.giver.GivesTo(ShardId(s));
    const PeerId& peer = relay != nullptr ? *relay : parts_.lanes.primary(ShardId(s));
    const auto [entry, is_new] = indices.try_emplace(peer, all.size());
    if (is_new) all.push_back({.peer = peer, .is_relay = relay != nullptr});
    receivers.push_back(entry->second);
  }
  groups_.Cut(std::move(all), receivers, GradientBytes(plan_));
  window_.SetRoundBytes(groups_.RoundBytes());
}

// P4: steps from the lowest incomplete one to LastStepToSend may be sent. Their gradients leave in
// this order: a later step's when compute has made its part of the step before, and all of that is
// sent. If more of an earlier step comes, for another worker or after a loss, it leaves first.
void PushSender::FollowSteps() {
  const Step lowest = versions_.lowest_incomplete();
  const Step last = plan_.steps.LastStepToSend(versions_.everywhere());
  const bool is_cut = has_cut_ && parts_.giver.changes() == giver_changes_;
  const std::vector<ShardId> unsent = gradients_.TakeUnsentShards();
  const bool has_earlier = std::ranges::any_of(
      unsent, [&](ShardId shard) { return gradients_.HasUnsentBefore(shard, step()); });
  if (!is_cut || has_earlier || known_.step < lowest || known_.step > last) {
    StartStep(lowest, is_cut);
  } else {
    StartStep(step(), is_cut);
    for (ShardId shard : unsent) {
      if (gradients_.HasUnsent(shard, step())) groups_.NoteReady(shard);
    }
  }
  while (step() < last && known_.is_computed && !groups_.has_ready())
    StartStep(NextStep(step()), /*is_cut=*/true);
}

// Makes this step the one whose gradients are sent, or continues it.
void PushSender::StartStep(Step step, bool is_cut) {
  const bool has_work = parts_.steps.Find(step) != nullptr;
  const bool was_computed =
      has_work && known_.step == step && known_.has_work && known_.is_computed;
  const Known known{step, has_work, was_computed || parts_.steps.IsComputed(step)};
  if (is_cut && known == known_) return;
  if (!is_cut) CutGroups();
  if (!is_cut || known.step != known_.step) {
    front_ = ShardId(0);
    back_ = ShardId(std::max(plan_.shards.shard_count(), 2u) - 2);
  }
  has_cut_ = true;
  giver_changes_ = parts_.giver.changes();
  known_ = known;
  groups_.StartOver(/*takes_parts=*/known.is_computed);
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    if (gradients_.HasUnsent(ShardId(s), step)) groups_.NoteReady(ShardId(s));
  }
}

// ---- what may be sent --------------------------------------------------------------------------

std::vector<size_t> PushSender::ChooseGroups(Micros now) {
  std::vector<size_t> chosen = groups_.TakeForRelay();
  window_.Begin(LookAtStep(now));
  groups_.TakeFromFront([&](ShardId first) { return window_.AdmitsFromFront(first); }, &chosen);
  groups_.TakeFromBack([&](ShardId last) { return window_.AdmitsFromBack(last); }, &chosen);
  window_.End(/*is_held_up=*/groups_.has_ready());
  return chosen;
}

// A shard at the end whose gradients are made late does not hold up the window: it begins at the
// last shard that has gradients of this worker.
PushWindow::Look PushSender::LookAtStep(Micros now) {
  const Version lacking = VersionMadeBy(step());
  while (front_ < back_ && versions_.known(front_) >= lacking) front_ = ShardId(front_.value() + 1);
  while (front_ < back_ && versions_.known(back_) >= lacking) back_ = ShardId(back_.value() - 1);
  ShardId back = back_;
  while (front_ < back && !gradients_.AsksFor(back, lacking)) back = ShardId(back.value() - 1);
  const bool is_computed = parts_.steps.IsComputed(step());
  const ShardId begin = is_computed ? front_ : back;
  return {.now = now,
          .usual = parts_.clock.usual(),
          .lacking = lacking,
          .is_computed = is_computed,
          .front = front_,
          .back = back,
          .is_awaiting_us = versions_.known(begin) < lacking && !IsAllHere(begin)};
}

// Whether all that this worker itself computes of the shard is here; on a relay maybe in a sum with
// the parts of the group's other workers.
bool PushSender::IsAllHere(ShardId shard) const {
  const Steps::Work* work = parts_.steps.Find(step());
  const MicroBatchTree tree = plan_.steps.Tree(step());
  return work == nullptr || std::ranges::all_of(work->issued, [&](MicroBatch m) {
           return gradients_.Contains(shard, step(), tree.Leaf(m));
         });
}

// ---- sending -----------------------------------------------------------------------------------

void PushSender::Gather(Micros now, const PushGroups::Group& group, Parcel* parcel) {
  for (const ShardId shard : group.shards) {
    const std::vector<UnrepliedGradient>& gradients = gradients_.shard(shard);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const UnrepliedGradient& gradient = gradients[i];
      if (!gradient.is_unsent() || gradient.step != step()) continue;
      const Micros leaves_at = LeavesAt(now, shard, gradient);
      if (leaves_at > now) {
        look_again_at_ = std::min(look_again_at_, leaves_at);
        groups_.NoteReadyAlone(shard);
        continue;
      }
      parcel->items.push_back({shard, gradient.step, gradient.node, gradient.payload});
      parcel->bytes += gradient.payload.size_bytes();
      parcel->gradients.emplace_back(shard, i);
    }
  }
}

// P6a: a relay's sum waits for those of the group's other workers, but not for a late one.
Micros PushSender::LeavesAt(Micros now, ShardId shard, const UnrepliedGradient& gradient) {
  if (parts_.giver.Gives(shard)) return now;
  const Micros patience =
      std::min(parts_.clock.usual().value_or(Micros::max()), PushWindow::kPatienceMax);
  return parts_.relay.LeavesAt(now, shard, gradient, patience);
}

void PushSender::Send(Micros now, const PushGroups::Receiver& receiver, Parcel parcel) {
  const Version version = VersionMadeBy(step());
  for (const auto& [shard, index] : parcel.gradients) {
    gradients_.MarkSent(shard, index, receiver.is_relay ? Delivery::kGiven : Delivery::kPushed);
    parts_.requests.OnAsked(now, shard, version);
  }
  if (receiver.is_relay) {
    parts_.giver.OnGiven(now, receiver.peer);
    bytes_.given += parcel.bytes;
  } else {
    parts_.requests.Expect(now, receiver.peer);
    bytes_.pushed += parcel.bytes;
    if (!parts_.steps.IsComputed(step())) bytes_.early += parcel.bytes;
  }
  for (auto& items : InMessages(std::move(parcel.items), MessageBytesFor(receiver.bytes)))
    parts_.lanes.Send(receiver.peer, Push{std::move(items)});
}

}  // namespace pando
