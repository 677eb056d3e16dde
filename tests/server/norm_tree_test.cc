#include "server/norms/norm_tree.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "server/norms/shard_sum.h"

namespace pando {
namespace {

constexpr Step kStep(3);

PeerId LaneNumber(uint32_t i) {
  return {NodeId(1 + i / 2), Incarnation(1000 + i / 2), static_cast<uint16_t>(i % 2)};
}

// Each lane leads every lane_count-th shard.
View MakeView(uint32_t lane_count, uint32_t shard_count) {
  View view;
  for (uint32_t s = 0; s < shard_count; ++s)
    view.shards.push_back({.primary = LaneNumber(s % lane_count)});
  return view;
}

// Lanes that exchange sums as server/norms/norms.cc does, each shard's value being its number.
class Exchange {
 public:
  Exchange(uint32_t lane_count, uint32_t shard_count, size_t peers_max) : all_(shard_count, true) {
    const View view = MakeView(lane_count, shard_count);
    for (uint32_t i = 0; i < lane_count; ++i)
      nodes_.try_emplace(LaneNumber(i), NormTree(view, LaneNumber(i), peers_max));
    for (uint32_t i = 0; i < lane_count; ++i) {
      PartialTotal total;
      PartialSum own{kStep, {}, {}};
      for (uint32_t s = i; s < shard_count; s += lane_count) {
        own.shards.emplace_back(s);
        total.squares.Add(s);
      }
      own.values = total.Write();
      Take(nodes_.at(LaneNumber(i)), own);
    }
  }

  struct Node {
    explicit Node(NormTree tree_in) : tree(std::move(tree_in)) {}
    NormTree tree;
    std::vector<PartialSum> sums;
    std::optional<PartialTotal> total;
    bool has_told_up = false;
    size_t sent = 0, received = 0;
  };
  const std::map<PeerId, Node>& nodes() const { return nodes_; }

 private:
  ShardSum Collect(const Node& node, const std::vector<bool>& shards) const {
    ShardSum sum(shards);
    for (const PartialSum& taken : node.sums) sum.Add(taken);
    return sum;
  }
  void Take(Node& node, const PartialSum& news) {
    if (node.total) return;
    node.sums.push_back(news);
    const ShardSum up = Collect(node, node.tree.shards());
    if (up.is_complete() && !std::exchange(node.has_told_up, true))
      Send(node, node.tree.up(), up.Write(kStep));
    const ShardSum all = Collect(node, all_);
    if (news.shards.empty()) node.total.emplace().AddWritten(news.values);
    if (all.is_complete()) node.total = all.total();
    if (node.total) Send(node, node.tree.down(), {kStep, {}, node.total->Write()});
  }
  void Send(Node& node, const std::vector<PeerId>& peers, const PartialSum& sum) {
    for (const PeerId& peer : peers) {
      ++node.sent;
      ++nodes_.at(peer).received;
      Take(nodes_.at(peer), sum);
    }
  }

  const std::vector<bool> all_;
  std::map<PeerId, Node> nodes_;
};

TEST_CASE(
    "every lane gets the total, and sends and receives about twice the root of their number") {
  for (const auto& [lanes, peers_max, messages_max] : {std::tuple(1u, 16, 0u),
                                                       {2u, 16, 1u},
                                                       {16u, 16, 15u},
                                                       {17u, 16, 8u},
                                                       {100u, 16, 18u},
                                                       {512u, 16, 44u},
                                                       {1024u, 16, 62u},
                                                       {2u, 1, 1u},
                                                       {3u, 1, 2u},
                                                       {7u, 1, 4u}}) {
    CAPTURE(lanes);
    const uint32_t shard_count = 3 * lanes + 1;
    const Exchange exchange(lanes, shard_count, static_cast<size_t>(peers_max));
    for (const auto& [id, node] : exchange.nodes()) {
      REQUIRE(node.total);
      CHECK(node.total->squares.Total() == shard_count * (shard_count - 1) / 2.0);
      CHECK(node.sent <= messages_max);
      CHECK(node.received <= messages_max);
    }
  }
}

TEST_CASE("a lane that leads no shard, and one beside shards without a primary, wait for no lane") {
  View view = MakeView(3, 4);
  const NormTree idle(view, LaneNumber(7), 16);
  CHECK(idle.up().empty());
  CHECK(std::ranges::none_of(idle.shards(), std::identity()));
  view.shards[1].primary = {};
  const NormTree tree(view, LaneNumber(0), 16);
  CHECK(tree.up() == std::vector<PeerId>{LaneNumber(2)});
  CHECK(tree.shards() == std::vector<bool>{true, false, false, true});
}

TEST_CASE("no shard is added to a sum twice, and none that is not allowed") {
  const std::vector<bool> allowed{true, true, true, false};
  ShardSum sum(allowed);
  const auto add = [&](std::vector<ShardId> shards, double squares) {
    PartialTotal total;
    total.squares.Add(squares);
    sum.Add({kStep, std::move(shards), total.Write()});
    return sum.total().squares.Total();
  };
  CHECK(add({ShardId(0), ShardId(2)}, 4) == 4);
  CHECK(add({ShardId(1), ShardId(2)}, 8) == 4);
  CHECK(add({ShardId(1), ShardId(3)}, 8) == 4);
  CHECK(add({ShardId(1), ShardId(4)}, 8) == 4);
  CHECK_FALSE(sum.is_complete());
  CHECK(add({ShardId(1)}, 16) == 20);
  CHECK(sum.is_complete());
  CHECK(sum.Write(kStep).shards == std::vector<ShardId>{ShardId(0), ShardId(1), ShardId(2)});
}

}  // namespace
}  // namespace pando
