#include "proto/view_delta.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace pando {
namespace {

NodeInfo Node(uint32_t id, uint64_t life) {
  return {.node = NodeId(id), .incarnation = Incarnation(life), .host = "host"};
}

View MakeView() {
  View view{.id = {1, 4}, .generation = 1};
  for (uint32_t id = 1; id <= 6; ++id) view.nodes.push_back(Node(id, id));
  view.shards.resize(5);
  view.owners.resize(8);
  return view;
}

// Any members, shards and owners may change.
View ChangedAtRandom(const View& view, std::mt19937& generator) {
  const auto random = [&] { return static_cast<uint32_t>(generator()); };
  View next = view;
  next.id.number += 1 + random() % 3;
  next.generation += random() % 4 == 0 ? 1 : 0;
  std::erase_if(next.nodes, [&](const NodeInfo&) { return random() % 5 == 0; });
  for (NodeInfo& node : next.nodes) {
    if (random() % 5 == 0) node.incarnation = Incarnation(random());
  }
  for (uint32_t id = 10; id < 30; ++id) {
    const auto has_id = [&](const NodeInfo& node) { return node.node == NodeId(id); };
    if (random() % 8 == 0 && std::ranges::none_of(next.nodes, has_id))
      next.nodes.push_back(Node(id, random()));
  }
  std::ranges::sort(next.nodes, {}, &NodeInfo::node);
  for (ShardPlacement& shard : next.shards) {
    if (random() % 3 == 0) shard.primary = {NodeId(random() % 9), Incarnation(random()), 0};
  }
  for (MicroBatchOwner& owner : next.owners) {
    if (random() % 3 == 0) owner.worker = NodeId(random() % 3);
  }
  return next;
}

TEST_CASE("a difference makes the newer view of the older one, for any two views") {
  std::mt19937 random(7);
  SharedView view = MakeView();
  for (int i = 0; i < 300; ++i) {
    const SharedView next = ChangedAtRandom(*view, random);
    const std::optional<ViewChange> change = Difference(view, next);
    REQUIRE(change);
    const std::optional<SharedView> made = Apply(view, *change);
    REQUIRE(made);
    CHECK(made->hash() == next.hash());
    CHECK((*made)->nodes == next->nodes);
    CHECK((*made)->shards == next->shards);
    CHECK((*made)->owners == next->owners);
    CHECK_FALSE(Apply(next, *change));
    view = next;
  }
}

TEST_CASE("a difference names only what has changed, owners as runs") {
  const View view = MakeView();
  View next = view;
  next.id.number += 1;
  next.nodes.erase(next.nodes.begin() + 2);
  next.nodes[0].incarnation = Incarnation(77);
  next.shards[3].primary.node = NodeId(2);
  for (uint32_t i : {2u, 3u, 4u, 6u}) next.owners[i].worker = NodeId(5);
  const ViewChange change = *Difference(view, next);
  CHECK(change.removed == std::vector<NodeId>{NodeId(3)});
  REQUIRE(change.changed.size() == 1);
  CHECK(change.changed[0].incarnation == Incarnation(77));
  REQUIRE(change.shards.size() == 1);
  CHECK(change.shards[0].shard == ShardId(3));
  REQUIRE(change.owners.size() == 2);
  CHECK(change.owners[0].first == MicroBatch(2));
  CHECK(change.owners[0].count == 3);
}

TEST_CASE("a difference whose runs overlap is not applied") {
  const View view = MakeView();
  View next = view;
  next.id.number += 1;
  for (uint32_t i : {1u, 3u}) next.owners[i].worker = NodeId(5);
  ViewChange change = *Difference(view, next);
  REQUIRE(Apply(view, change));
  change.owners.push_back(change.owners.back());
  CHECK_FALSE(Apply(view, change));
}

TEST_CASE("a view of another number of shards or micro-batches has no difference") {
  const View view = MakeView();
  View next = view;
  next.shards.pop_back();
  CHECK_FALSE(Difference(view, next));
  next = view;
  next.owners.emplace_back();
  CHECK_FALSE(Difference(view, next));
}

}  // namespace
}  // namespace pando
