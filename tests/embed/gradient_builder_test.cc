#include "embed/gradient_builder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/contains.h"
#include "tests/embed/embed_fixture.h"

namespace pando {
namespace {

struct BuilderFixture {
  JobPlan plan = SmallPlan();
  SharedBuffer buffer = std::make_shared<FloatBuffer>(plan.layout.float_count());
  GradientBuilder builder{plan, Filled()};

  SharedBuffer Filled() {
    std::ranges::fill(buffer->span(), 7.0f);
    return buffer;
  }
  std::vector<ShardId> Give(size_t tensor, float value, float weight = 1) {
    const std::vector<float> values(plan.layout.specs()[tensor].size(), value);
    return *builder.Give(tensor, values.data(), weight);
  }
};

TEST_CASE("each shard is complete once, with its last tensor, in any order") {
  BuilderFixture f;
  std::vector<ShardId> complete;
  for (size_t tensor : {4, 1, 3, 0, 2}) {
    for (ShardId shard : f.Give(tensor, 1)) complete.push_back(shard);
  }
  std::ranges::sort(complete);
  REQUIRE(complete.size() == f.plan.shards.shard_count());
  CHECK(std::ranges::adjacent_find(complete) == complete.end());
  CHECK(f.builder.Missing().empty());
}

TEST_CASE("values are multiplied by the weight, and the padding becomes zero") {
  BuilderFixture f;
  for (size_t tensor = 0; tensor < 5; ++tensor) f.Give(tensor, 1.5f, 2);
  const TensorLayout& layout = f.plan.layout;
  for (size_t tensor = 0; tensor < 5; ++tensor) {
    const size_t end = layout.offset(tensor) + layout.specs()[tensor].size();
    CHECK(f.buffer->data()[end - 1] == 3);
    for (size_t i = end; i < layout.offset(tensor + 1); ++i) CHECK(f.buffer->data()[i] == 0);
  }
}

TEST_CASE("a tensor without a gradient has zeros") {
  BuilderFixture f;
  f.Give(0, 1);
  CHECK(f.builder.Missing() == std::vector<size_t>{1, 2, 3, 4});
  f.builder.GiveZeros(2);
  CHECK(f.buffer->data()[f.plan.layout.offset(2)] == 0);
  CHECK(f.builder.Missing() == std::vector<size_t>{1, 3, 4});
}

TEST_CASE("a second gradient of a tensor, or of one that does not exist, is an error") {
  BuilderFixture f;
  f.Give(2, 1);
  const float values[5] = {};
  CHECK(Contains(f.builder.Give(2, values, 1).status().message(),
                 "'c' got a second gradient in one micro-batch"));
  CHECK(f.builder.Give(5, values, 1).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a value that is not finite, or is not once it is multiplied, names the tensor") {
  for (float value : {NAN, INFINITY, -INFINITY, std::numeric_limits<float>::max()}) {
    BuilderFixture f;
    std::vector<float> values(5, 1.0f);
    values[4] = value;
    const Status status = f.builder.Give(2, values.data(), 2).status();
    CHECK(status.code() == StatusCode::kInternal);
    CHECK(Contains(status.message(), "the gradient of 'c' is not finite"));
  }
}

}  // namespace
}  // namespace pando
