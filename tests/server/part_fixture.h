// Shared by the tests of a lane's parts: server 1's view member and replicas, and the messages that
// the part under test sends.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "server/replicas.h"
#include "tests/server/two_shards.h"

namespace pando {

inline constexpr Micros kLease = std::chrono::seconds(1);

class PartFixture : public Outbox {
 public:
  static constexpr JobId kJob{5};
  static constexpr PeerId kScheduler{kSchedulerNode, Incarnation(1000), 0};
  static constexpr PeerId kWorker{NodeId(99), Incarnation(1099), 0};
  static PeerId Server(uint32_t i) { return {NodeId(i), Incarnation(1000 + i), 0}; }

  explicit PartFixture(const Job& job = MakeJob(20)) : plan(TwoShardPlan(job)) {
    view.shards.resize(plan.shards.shard_count());
  }

  void Send(Envelope envelope) override { sent.push_back(std::move(envelope)); }
  // The messages of one type that were sent since the last call. Forgets all others, too.
  template <class M>
  std::vector<M> TakeSent() {
    std::vector<M> messages;
    for (const Envelope& envelope : sent) {
      if (const M* message = std::get_if<M>(&envelope.message)) messages.push_back(*message);
    }
    sent.clear();
    return messages;
  }

  void Place(uint32_t shard, uint32_t primary, const std::vector<uint32_t>& in_sync = {},
             const std::vector<uint32_t>& syncing = {}) {
    view.shards[shard] = {.primary = Server(primary)};
    for (uint32_t i : in_sync) view.shards[shard].in_sync_backups.push_back(Server(i));
    for (uint32_t i : syncing)
      view.shards[shard].syncing_backups.push_back({Server(i), {1, view.id.number + 1}});
  }
  // The member enters a new view with what was placed.
  Replicas::Changes Enter() {
    view.id = {1, view.id.number + 1};
    REQUIRE(member.Enter(kScheduler, view));
    sent.clear();
    return replicas.EnterView();
  }
  Shard& shard(uint32_t id) { return replicas.Find(ShardId(id))->shard; }
  Envelope From(const PeerId& peer) const {
    return {.job = kJob,
            .generation = view.generation,
            .view = view.id,
            .sender = peer,
            .receiver = Server(1),
            .message = Bye{}};
  }
  Blob Gradient(uint32_t id, float value) const {
    const auto buffer = std::make_shared<FloatBuffer>(plan.shards.range(ShardId(id)).size());
    std::ranges::fill(buffer->span(), value);
    return ToBlob(buffer);
  }
  // The primary holds the whole tree of its step.
  void FillTree(uint32_t id, float value = 1.0f) {
    Shard& of = shard(id);
    REQUIRE(of.Add({of.id(), of.step(), MicroBatchTree::kRoot, Gradient(id, value)}) ==
            Shard::Taken::kNew);
  }
  // The primary makes and commits its next version.
  void MakeVersion(uint32_t id) {
    FillTree(id);
    shard(id).MakeAlone({.lr = 0.5f}, {});
    shard(id).records().Commit();
  }

  const JobPlan plan;
  const VersionMaker maker{plan};
  View view;
  std::vector<Envelope> sent;
  ViewMember member{{Server(1), kScheduler, kJob}, *this};
  Replicas replicas{member, plan, maker, {}};
  Micros now = std::chrono::seconds(10);
};

}  // namespace pando
