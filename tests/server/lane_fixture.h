// Shared by the lane's tests: lanes whose messages arrive in order and at once, a scheduler and a
// worker that only listen, and snapshots in memory. Messages wait until Deliver(), so that a test
// may look at, drop or reorder them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "server/lane.h"
#include "tests/server/two_shards.h"

namespace pando {

class LaneFixture : public Outbox {
 public:
  static constexpr JobId kJob{5};
  static constexpr PeerId kScheduler{kSchedulerNode, Incarnation(1000), 0};
  static constexpr PeerId kWorker{NodeId(99), Incarnation(1099), 0};
  static PeerId Server(uint32_t i) { return {NodeId(i), Incarnation(1000 + i), 0}; }

  // Servers are numbered from 1.
  explicit LaneFixture(uint32_t servers, const Job& job = MakeJob(20), LaneProbe* probe = nullptr)
      : plan(TwoShardPlan(job)) {
    for (uint32_t i = 1; i <= servers; ++i) {
      snapshots[i];
      lanes[i] = std::make_unique<Lane>(
          Lane::Options{{Server(i), kScheduler, kJob}, "test", std::chrono::seconds(1), probe},
          plan, snapshots[i], *this);
    }
    view.id = {1, 0};
    for (uint32_t i = 1; i <= servers; ++i)
      view.nodes.push_back({NodeId(i), Server(i).incarnation, Role::kServer, i - 1, "host", {"e"}});
    view.nodes.push_back({kWorker.node, kWorker.incarnation, Role::kWorker, 0, "host", {}});
    view.shards.resize(plan.shards.shard_count());
  }

  Lane& lane(uint32_t i) { return *lanes.at(i); }
  const Shard& shard(uint32_t server, uint32_t id = 0) {
    return lane(server).replicas().at(ShardId(id)).shard;
  }
  bool Has(uint32_t server, uint32_t id = 0) {
    return lane(server).replicas().contains(ShardId(id));
  }

  // ---- the network -----------------------------------------------------------------------------
  void Send(Envelope envelope) override { queue.push_back(std::move(envelope)); }

  // Delivers messages until no lane sends any more, except those that `drops` takes away. What
  // is for the scheduler and the worker is kept in `heard`.
  using Drops = std::function<bool(const Envelope&)>;
  void Deliver(const Drops& drops = nullptr) {
    do {
      while (!queue.empty()) {
        const Envelope envelope = std::move(queue.front());
        queue.pop_front();
        if (drops == nullptr || !drops(envelope)) Hand(envelope);
      }
      TickAll();
      if (queue.empty()) {  // what is held for company goes now
        now += std::chrono::milliseconds(2);
        TickAll();
      }
    } while (!queue.empty());
  }
  // Lets time pass, so that what is unanswered is repeated.
  void Wait(Micros time, const Drops& drops = nullptr) {
    const Micros end = now + time;
    while (now < end) {
      now += std::chrono::milliseconds(10);
      TickAll();
      Deliver(drops);
    }
  }
  void Kill(uint32_t i) { lanes.erase(i); }

  template <class M>
  void SendFrom(const PeerId& from, uint32_t server, M message) {
    queue.push_back({.job = kJob,
                     .generation = view.generation,
                     .view = view.id,
                     .sender = from,
                     .receiver = Server(server),
                     .message = std::move(message)});
  }
  template <class M>
  std::vector<M> Heard(const PeerId& by) const {
    std::vector<M> messages;
    for (const Envelope& envelope : heard) {
      const M* message = std::get_if<M>(&envelope.message);
      if (message != nullptr && envelope.receiver == by) messages.push_back(*message);
    }
    return messages;
  }
  // The version of a shard that the worker was shown last.
  std::optional<Version> Shown(uint32_t id = 0) const {
    std::optional<Version> last;
    for (const Params& params : Heard<Params>(kWorker)) {
      for (const ParamsItem& item : params.items) {
        if (item.shard == ShardId(id)) last = item.version;
      }
    }
    return last;
  }

  // ---- the scheduler and the worker ------------------------------------------------------------
  void Place(uint32_t id, uint32_t primary, std::vector<uint32_t> in_sync,
             std::vector<std::pair<uint32_t, ViewId>> syncing = {}) {
    ShardPlacement& placement = view.shards[id];
    placement = {.primary = Server(primary)};
    for (uint32_t i : in_sync) placement.in_sync_backups.push_back(Server(i));
    for (const auto& [i, since] : syncing) placement.syncing_backups.push_back({Server(i), since});
  }
  ViewId NextViewId() const { return {view.id.term, view.id.number + 1}; }
  // Announces what was placed, to all lanes or to these.
  void Announce(std::vector<uint32_t> to = {}) {
    view.id = NextViewId();
    TellView(to);
  }
  void TellView(const std::vector<uint32_t>& to = {}) {
    for (auto& [i, lane] : lanes) {
      if (to.empty() || std::ranges::find(to, i) != to.end())
        SendFrom(kScheduler, i, ViewUpdate{view});
    }
  }
  void GiveScalars() {
    Scalars scalars{Step(0), std::vector<StepScalars>(plan.steps.step_count())};
    for (StepScalars& s : scalars.steps) s = {.lr = 0.5f, .momentum = 0.9f};
    for (auto& [i, lane] : lanes) SendFrom(kScheduler, i, scalars);
  }
  Blob Gradient(uint32_t id, float value) const {
    auto buffer = std::make_shared<FloatBuffer>(plan.shards.range(ShardId(id)).size());
    std::ranges::fill(buffer->span(), value);
    return ToBlob(buffer);
  }
  // The whole step's contribution to a shard, a function of shard and step.
  void PushStep(uint32_t server, uint64_t step, uint32_t id = 0) {
    const float value = static_cast<float>(step % 7) + 0.25f * static_cast<float>(id);
    SendFrom(kWorker, server,
             Push{{{ShardId(id), Step(step), MicroBatchTree::kRoot, Gradient(id, value)}}});
  }

  const JobPlan plan;
  Micros now{0};
  View view;
  std::map<uint32_t, MemorySnapshots> snapshots;
  std::map<uint32_t, std::unique_ptr<Lane>> lanes;
  std::deque<Envelope> queue;
  std::vector<Envelope> heard;

 private:
  void TickAll() {
    for (auto& [i, lane] : lanes) lane->Tick(now);
  }
  void Hand(const Envelope& envelope) {
    const auto it = lanes.find(envelope.receiver.node.value());
    if (it != lanes.end() && envelope.receiver == Server(it->first)) {
      it->second->OnMessage(now, envelope);
    } else {
      heard.push_back(envelope);
    }
  }
};

}  // namespace pando
