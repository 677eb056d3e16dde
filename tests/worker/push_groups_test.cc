#include "worker/push_groups.h"

#include <doctest/doctest.h>

#include <numeric>

#include "tests/worker/compute_log.h"

namespace pando {
namespace {

constexpr size_t kKiB = 1 << 10;
constexpr PeerId kAnyRelay{NodeId(3), Incarnation(3), 0};

using GroupShards = std::vector<uint32_t>;

struct Groups {
  explicit Groups(const std::vector<size_t>& receivers, size_t shard_bytes = 70 * kKiB,
                  bool has_relay = false) {
    std::vector<PushGroups::Receiver> all{{.peer = kLaneA}, {.peer = kLaneB}};
    if (has_relay) all.push_back({.peer = kAnyRelay, .is_relay = true});
    std::vector<size_t> bytes(receivers.size(), shard_bytes);
    bytes.back() = 40;  // the metric tensor's
    groups.Cut(std::move(all), receivers, bytes);
  }
  void Note(const GroupShards& shards) {
    for (const uint32_t s : shards) groups.NoteReady(ShardId(s));
  }
  std::vector<GroupShards> Named(const std::vector<size_t>& indices) const {
    std::vector<GroupShards> all;
    for (const size_t index : indices) {
      all.emplace_back();
      for (const ShardId shard : groups.group(index).shards) all.back().push_back(shard.value());
    }
    return all;
  }
  std::vector<GroupShards> TakeFromBack(uint32_t down_to = 0) {
    std::vector<size_t> taken;
    groups.TakeFromBack([&](ShardId last) { return last.value() >= down_to; }, &taken);
    return Named(taken);
  }
  std::vector<GroupShards> TakeFromFront(uint32_t up_to) {
    std::vector<size_t> taken;
    groups.TakeFromFront([&](ShardId first) { return first.value() <= up_to; }, &taken);
    return Named(taken);
  }
  PushGroups groups;
};

TEST_CASE("groups are cut from the back, and the metric tensor's shard is one by itself") {
  Groups f({0, 0, 0, 0, 0, 0}, 40 * kKiB);
  f.Note({0, 1, 2, 3, 4, 5});
  CHECK(f.TakeFromBack() == std::vector<GroupShards>{{5}, {3, 4}, {1, 2}, {0}});
  CHECK_FALSE(f.groups.has_ready());
}

TEST_CASE("a receiver of few bytes gets them in one group") {
  Groups f({0, 0, 0, 0}, 30 * kKiB);
  f.Note({0, 1, 2, 3});
  CHECK(f.TakeFromBack() == std::vector<GroupShards>{{0, 1, 2, 3}});
}

TEST_CASE("a group is ready when all its shards are, and when computing is over with any") {
  Groups f({0, 1, 0, 1, 0}, 40 * kKiB);
  f.Note({0});
  CHECK_FALSE(f.groups.has_ready());
  f.Note({2, 2});
  CHECK_FALSE(f.groups.has_ready());
  f.Note({4});
  CHECK(f.TakeFromBack() == std::vector<GroupShards>{{0, 2, 4}});
  f.groups.NoteReadyAlone(ShardId(2));
  CHECK(f.TakeFromBack() == std::vector<GroupShards>{{0, 2, 4}});
  f.groups.StartOver(/*takes_parts=*/true);
  f.Note({3});
  CHECK(f.TakeFromBack() == std::vector<GroupShards>{{1, 3}});
}

TEST_CASE("groups are taken in the shards' order from the front, and in the opposite one") {
  Groups f({0, 1, 0, 1, 0, 1, 0});
  f.Note({0, 1, 2, 3, 4, 5, 6});
  CHECK(f.TakeFromFront(1) == std::vector<GroupShards>{{0}, {1}});
  CHECK(f.TakeFromBack(4) == std::vector<GroupShards>{{6}, {5}, {4}});
  CHECK(f.TakeFromFront(9) == std::vector<GroupShards>{{2}, {3}});
  f.Note({2});  // was sent, and is to be sent again
  CHECK(f.TakeFromFront(9) == std::vector<GroupShards>{{2}});
}

TEST_CASE("groups for the relay are taken at once, and are not part of a round") {
  Groups f({0, 2, 2, 1}, 70 * kKiB, /*has_relay=*/true);
  f.Note({0, 1, 2});
  CHECK(f.Named(f.groups.TakeForRelay()) == std::vector<GroupShards>{{2}, {1}});
  CHECK(f.TakeFromBack() == std::vector<GroupShards>{{0}});
  CHECK(f.groups.RoundBytes() == 70 * kKiB + 40);
}

TEST_CASE("lanes of 4 MiB and more have groups of 128 KiB, and smaller lanes have more of them") {
  std::vector<size_t> all_to_a(2049, 0);
  Groups large(all_to_a, 4 * kKiB);
  std::vector<uint32_t> shards(2048);
  std::iota(shards.begin(), shards.end(), 0);
  large.Note(shards);
  CHECK(large.TakeFromBack().front().size() == 32);
  all_to_a.resize(65);
  Groups small(all_to_a, 4 * kKiB);
  shards.resize(64);
  small.Note(shards);
  CHECK(small.TakeFromBack().front().size() == 16);
}

}  // namespace
}  // namespace pando
