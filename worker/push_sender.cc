#include "worker/push_sender.h"

#include <algorithm>
#include <utility>

#include "proto/message_limits.h"

namespace pando {
namespace {

enum Edge : uint8_t { kFront, kBack };

// One look at a lane's shards, first from the front, if at all, and then from the back.
struct LaneLook {
  PushWindow& window;
  bool is_held_up = false;
  size_t passed_bytes = 0;         // from this end
  bool is_waiting_for_us = false;  // in the shard where the look from this end began, if it has

  // Whether the next shard may be sent.
  bool Admits(const PushLook& look, Edge edge) {
    const size_t share = std::clamp(window.lane_bytes / PushWindow::kShareOfLane,
                                    PushWindow::kBytesMin, PushWindow::kBytesMax);
    size_t room = std::min(look.window_bytes_max, share);
    if (look.is_computed && edge == kBack) room = 1;  // for one shard, however large
    if (passed_bytes < room || look.window_bytes_max == SIZE_MAX) return true;
    if (is_waiting_for_us || window.open_to == look.lacking) return true;
    if (window.open_at == kNever) window.open_at = look.now + look.patience;
    is_held_up = look.now < window.open_at;
    if (!is_held_up) window.open_to = look.lacking;
    return !is_held_up;
  }
  // The next shard lacks the version.
  void Pass(const PushLook& look, Edge edge, uint32_t s) {
    if (passed_bytes == 0) {
      const bool has_moved = std::exchange(window.begins_at[edge], ShardId(s)) != ShardId(s);
      if (has_moved) window.open_at = is_held_up ? look.now + look.patience : kNever;
      is_waiting_for_us = look.shards[s].is_awaiting_us;
    }
    passed_bytes += look.shards[s].bytes;
  }
};

}  // namespace

PushLook ChooseShards(PushLook look) {
  look.chosen.clear();
  std::vector<LaneLook> lanes;
  for (PushWindow& window : look.windows) {
    if (std::exchange(window.lacking, look.lacking) != look.lacking) window.open_at = kNever;
    lanes.push_back({window});
  }
  const auto look_at = [&](uint32_t s, Edge edge) {
    PushLook::Shard& shard = look.shards[s];
    LaneLook& lane = lanes[shard.window];
    if (shard.has_ready && (shard.is_given || lane.Admits(look, edge))) {
      look.chosen.emplace_back(s);
      shard.has_ready = false;
    }
    if (shard.is_lacking) lane.Pass(look, edge, s);
  };
  const auto shard_count = static_cast<uint32_t>(look.shards.size());
  if (look.is_computed) {
    for (uint32_t s = 0; s < shard_count; ++s) look_at(s, kFront);
    for (LaneLook& lane : lanes) lane.passed_bytes = 0;
  }
  for (uint32_t s = shard_count; s-- > 0;) look_at(s, kBack);
  for (const LaneLook& lane : lanes)
    lane.window.open_at = lane.is_held_up ? lane.window.open_at : kNever;
  return look;
}

// ---- the sender --------------------------------------------------------------------------------

PushSender::PushSender(const SessionPart& part, const Parts& parts, size_t window_bytes)
    : SessionPart(part), parts_(parts) {
  // If the update needs a value of all shards (P14), none is committed before all are complete.
  look_.window_bytes_max = HasPartials(plan_.job.optimizer) ? SIZE_MAX : window_bytes;
}

void PushSender::EnterView(const View& view) {
  std::map<PeerId, size_t> lanes;  // their windows
  shard_counts_.clear();
  look_.windows.clear();
  look_.shards.clear();
  for (uint32_t s = 0; s < view.shards.size(); ++s) {
    const PeerId& lane = view.shards[s].primary;
    ++shard_counts_[lane];
    const size_t window = lanes.try_emplace(lane, look_.windows.size()).first->second;
    look_.windows.resize(lanes.size());
    const size_t bytes = plan_.pushes.PayloadBytes(ShardId(s));
    look_.windows[window].lane_bytes += bytes;
    look_.shards.push_back({window, bytes});
  }
  const size_t given_count = parts_.giver.shard_count();
  if (given_count > 0) shard_counts_[parts_.giver.relay()] = given_count;
}

void PushSender::Tick(Micros now) {
  look_again_at_ = kNever;
  if (!gradients_.HasUnsent()) {
    for (PushWindow& window : look_.windows) window.open_at = kNever;
    return;
  }
  LookAtShards(now);
  look_ = ChooseShards(std::move(look_));
  for (auto& [key, parcel] : Gather(now)) {
    const auto& [receiver, step] = key;
    if (IsWorthSending(receiver, step, parcel)) Send(now, receiver, step, std::move(parcel));
  }
}

Micros PushSender::NextDeadline() const {
  Micros deadline = look_again_at_;
  for (const PushWindow& window : look_.windows) deadline = std::min(deadline, window.open_at);
  return deadline;
}

void PushSender::LookAtShards(Micros now) {
  const Step step_to_make = versions_.lowest_incomplete();
  const size_t gradients_of_ours = parts_.steps.GradientsOfEachShard(step_to_make);
  look_.now = now;
  // A lane may wait for another worker for a quarter of a step while it carries nothing of ours.
  look_.patience = Patience(4);
  look_.lacking = VersionMadeBy(step_to_make);
  look_.is_computed = parts_.steps.IsComputed(step_to_make);
  for (uint32_t s = 0; s < look_.shards.size(); ++s) {
    PushLook::Shard& shard = look_.shards[s];
    const ShardId id(s);
    const auto may_go = [&](const UnrepliedGradient& gradient) { return MayGo(now, id, gradient); };
    shard.is_given = parts_.giver.Gives(id);
    shard.has_ready = std::ranges::count_if(gradients_.shard(id), may_go) > 0;
    shard.is_lacking = versions_.known(id) < look_.lacking;
    if (!shard.is_lacking) continue;
    shard.is_awaiting_us = parts_.relay.Sums(id) ? !IsAllHere(id, step_to_make)
                                                 : gradients_.shard(id).size() < gradients_of_ours;
  }
}

// The gradients of the chosen shards that may go, by receiver.
PushSender::Parcels PushSender::Gather(Micros now) {
  Parcels parcels;
  for (ShardId shard : look_.chosen) {
    const PeerId& receiver =
        parts_.giver.Gives(shard) ? parts_.giver.relay() : parts_.lanes.primary(shard);
    const std::vector<UnrepliedGradient>& gradients = gradients_.shard(shard);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const UnrepliedGradient& gradient = gradients[i];
      if (!MayGo(now, shard, gradient)) continue;
      Parcel& parcel = parcels[{receiver, gradient.step}];
      parcel.items.push_back({shard, gradient.step, gradient.node, gradient.payload});
      parcel.bytes += gradient.payload.size_bytes();
      parcel.shards.insert(shard);
      parcel.gradients.push_back({shard, i});
    }
  }
  return parcels;
}

// Whether it may be sent if the lane's window has room. P4: nothing of step t + 1 is sent before
// version t + 1 of every shard is known to be committed. P6a: a relay's sum waits for those of the
// host's other workers.
bool PushSender::MayGo(Micros now, ShardId shard, const UnrepliedGradient& gradient) {
  if (!gradient.is_unsent() || VersionMadeBy(gradient.step) > look_.lacking) return false;
  if (parts_.giver.Gives(shard)) return true;
  const Micros leaves_at = parts_.relay.LeavesAt(now, shard, gradient, Patience(1));
  if (leaves_at > now) look_again_at_ = std::min(look_again_at_, leaves_at);
  return leaves_at <= now;
}

// Whether all that a relay itself gives of the shard is here, maybe in a sum with the parts of the
// host's other workers.
bool PushSender::IsAllHere(ShardId shard, Step step) const {
  const Steps::Work* work = parts_.steps.Find(step);
  const MicroBatchTree tree = plan_.steps.Tree(step);
  return work == nullptr || std::ranges::all_of(work->issued, [&](MicroBatch m) {
           return gradients_.Contains(shard, step, tree.Leaf(m));
         });
}

// A part of the usual time of a step. It ends before a late worker gets help, which begins after
// three steps.
Micros PushSender::Patience(int64_t divisor) const {
  const Micros usual = parts_.clock.usual().value_or(Micros::max());
  return std::min(usual / divisor, PushWindow::kPatienceMax);
}

// A parcel is sent when it has all shards of the receiver, or enough bytes, or when this worker has
// computed the step.
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
