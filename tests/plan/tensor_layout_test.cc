#include "plan/tensor_layout.h"
#include "plan/shard_plan.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "proto/message_limits.h"

namespace pando {
namespace {

TensorLayout MakeLayout(std::initializer_list<uint64_t> sizes) {
  std::vector<TensorSpec> specs;
  for (uint64_t size : sizes)
    specs.push_back({.name = "t" + std::to_string(specs.size()), .shape = {size}});
  return TensorLayout(std::move(specs));
}

TEST_CASE("tensors start on lines and count without padding") {
  TensorLayout layout = MakeLayout({1, 16, 17, 3});
  CHECK(layout.offset(1) == 16);
  CHECK(layout.offset(2) == 32);
  CHECK(layout.offset(3) == 64);
  CHECK(layout.float_count() == 80);
  CHECK(layout.parameter_count() == 37);
  CHECK(layout.Find("t2") == 2);
  CHECK(layout.Find("none") == 4);
}

bool BeginsWithPiece(const TensorLayout& layout, size_t at) {
  size_t tensor = 0;
  while (layout.offset(tensor + 1) <= at) ++tensor;
  return (at - layout.offset(tensor)) % TensorLayout::kPieceFloats == 0;
}

TEST_CASE("shards part the flat vector, aligned, and stay near the target") {
  for (auto sizes : {std::initializer_list<uint64_t>{1},
                     {5, 9},
                     {250, 10, 5000, 20, 16000, 50, 500, 10},
                     {20'000'000, 4096, 5'000'000, 1000, 10},
                     {1023, 1, 1024, 1025, 3000}}) {
    TensorLayout layout = MakeLayout(sizes);
    ShardPlan plan(layout);
    const size_t target = ShardPlan::TargetBytes(layout.float_count() * 4) / 4;
    size_t next = 0;
    for (const ShardRange& range : plan.ranges()) {
      CHECK(range.first == next);
      CHECK(range.first % TensorLayout::kAlignFloats == 0);
      CHECK(range.size() > 0);
      CHECK(range.size() <= 2 * target + TensorLayout::kPieceFloats);
      CHECK(BeginsWithPiece(layout, range.first));
      next = range.last;
    }
    CHECK(next == layout.float_count());
  }
}

TEST_CASE("up to 16 servers change no shard, more make them finer towards the front") {
  const TensorLayout layout = MakeLayout({64 * 27, 64, 5'000'000, 4096, 20'000'000, 1000, 50, 10});
  const size_t model_bytes = layout.float_count() * sizeof(float);
  CHECK(ShardPlan(MakeLayout({100'352, 128, 1280, 10, 16})).shard_count() == 64);  // an MLP
  CHECK(ShardPlan(MakeLayout({100'000})).shard_count() == 64);
  CHECK(ShardPlan(MakeLayout({11'000})).shard_count() == 10);
  const ShardPlan few(layout);
  for (const uint32_t servers : {1u, 2u, 15u, 16u}) {
    const ShardPlan plan(layout, {.servers_max = servers});
    REQUIRE(plan.shard_count() == few.shard_count());
    for (uint32_t s = 0; s < few.shard_count(); ++s)
      CHECK(plan.range(ShardId(s)).last == few.range(ShardId(s)).last);
  }
  for (const uint32_t servers : {17u, 64u, 512u, 1024u}) {
    CAPTURE(servers);
    const ShardPlan plan(layout, {.servers_max = servers});
    CHECK(plan.shard_count() <= kShardsMax);
    size_t next = 0;
    for (const ShardRange& range : plan.ranges()) {
      CHECK(range.first == next);
      CHECK(BeginsWithPiece(layout, range.first));
      const size_t bytes = range.size() * sizeof(float), place = range.first * sizeof(float);
      // A part of a tensor has less than two targets, and then a whole piece's rounding.
      CHECK(bytes <= 2 * std::max<size_t>(place / 32, 4 << 10) + (4 << 10));
      CHECK(bytes <= 2 * std::max<size_t>(model_bytes / 8 / servers, 4 << 10) + (4 << 10));
      next = range.last;
    }
    CHECK(next == layout.float_count());
  }
}

TEST_CASE("a target of one's own cuts shards of just that size, the metric tensor in the last") {
  constexpr size_t kTargetFloats = 1 << 18;
  TensorLayout layout = MakeLayout({kTargetFloats, kTargetFloats, kTargetFloats - 16, 16});
  ShardPlan plan(layout, {.target_bytes = kTargetFloats * sizeof(float)});
  REQUIRE(plan.shard_count() == 3);
  for (const ShardRange& range : plan.ranges()) CHECK(range.size() == kTargetFloats);
}

TEST_CASE("a run of floats is covered by the shards that hold it") {
  TensorLayout layout = MakeLayout({3000, 3000, 3000});
  ShardPlan plan(layout);
  REQUIRE(plan.shard_count() > 3);
  for (uint32_t i = 0; i < plan.shard_count(); ++i) {
    const ShardRange& range = plan.range(ShardId(i));
    auto whole = plan.Covering(range.first, range.last);
    CHECK(whole.first == i);
    CHECK(whole.last == i + 1);
    auto one = plan.Covering(range.last - 1, range.last);
    CHECK(one.first == i);
  }
  auto all = plan.Covering(0, layout.float_count());
  CHECK(all.first == 0);
  CHECK(all.last == plan.shard_count());
}

}  // namespace
}  // namespace pando
