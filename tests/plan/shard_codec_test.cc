#include "plan/shard_codec.h"
#include "plan/payload_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/cpu_levels.h"

namespace pando {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr PayloadCodec kLossy[] = {PayloadCodec::kFp16, PayloadCodec::kBf16, PayloadCodec::kInt8};
constexpr PayloadCodec kEvery[] = {PayloadCodec::kFp16, PayloadCodec::kBf16, PayloadCodec::kInt8,
                                   PayloadCodec::kOneBit, PayloadCodec::kTopK};

// Weights, a statistic, a bias, metrics: 300 + 20 padded + ...
TensorLayout Layout() {
  return TensorLayout({{.name = "w", .shape = {300}},
                       {.name = "mean", .shape = {20}, .kind = TensorKind::kStatistic},
                       {.name = "b", .shape = {7}},
                       MetricTensorSpec()});
}

std::vector<float> RoundTrip(const ShardCodec& codec, const std::vector<float>& floats) {
  std::vector<std::byte> encoded(codec.encoded_bytes());
  codec.Encode(floats, encoded);
  std::vector<float> decoded(floats.size(), 77.0f);
  codec.Decode(encoded, decoded);
  return decoded;
}

// A codec of one tensor, without statistics.
ShardCodec PlainCodec(PayloadCodec codec, uint64_t floats) {
  return ShardCodec({codec}, TensorLayout({{.name = "w", .shape = {floats}}}), {0, floats});
}

TEST_CASE("statistics and metrics arrive bit for bit, parameters nearly") {
  const TensorLayout layout = Layout();
  const ShardRange whole{0, layout.float_count()};
  std::mt19937 random(5);
  std::vector<float> floats(whole.size());
  for (float& x : floats) x = static_cast<float>(random()) * 1e-9f - 2.0f;
  for (PayloadCodec kind : kLossy) {
    CAPTURE(static_cast<int>(kind));
    const std::vector<float> decoded = RoundTrip(ShardCodec({kind}, layout, whole), floats);
    const auto is_exact = [&](size_t i) {
      return (i >= layout.offset(1) && i < layout.offset(2)) || i >= layout.offset(3);
    };
    constexpr float kLargest = 2.3f;
    constexpr float kErrorMax = kLargest / 254;  // half a step of int8; more than the others'
    size_t changed = 0;
    for (size_t i = 0; i < floats.size(); ++i) {
      if (is_exact(i)) CHECK(decoded[i] == floats[i]);
      CHECK(std::abs(decoded[i] - floats[i]) <= kErrorMax);
      changed += decoded[i] != floats[i];
    }
    CHECK(changed > 200);
  }
}

TEST_CASE("a shard that is cut out of the middle of tensors is encoded as its own part") {
  const TensorLayout layout = Layout();
  const ShardRange middle{288, 336};  // the end of w, all of mean, the beginning of b
  const ShardCodec codec({PayloadCodec::kBf16}, layout, middle);
  CHECK(codec.float_count() == 48);
  CHECK(codec.encoded_bytes() == 32 * 4 + 16 * 2);
  std::vector<float> floats(48, 1.0f / 3);
  const std::vector<float> decoded = RoundTrip(codec, floats);
  CHECK(decoded[15] != floats[15]);
  CHECK(decoded[16] == floats[16]);
  CHECK(decoded[47] == floats[47]);
}

TEST_CASE("encoded shards are as long as the codec says, to a multiple of 8 bytes") {
  CHECK(PlainCodec(PayloadCodec::kBf16, 1024).encoded_bytes() == 2048);
  CHECK(PlainCodec(PayloadCodec::kFp16, 1024).encoded_bytes() == 2048);
  CHECK(PlainCodec(PayloadCodec::kInt8, 1024).encoded_bytes() == 4 * 4 + 1024);
  CHECK(PlainCodec(PayloadCodec::kInt8, 272).encoded_bytes() == 2 * 4 + 272);
  CHECK(PlainCodec(PayloadCodec::kInt8, 16).encoded_bytes() == 24);
}

TEST_CASE("bf16 and fp16 are the nearest, ties to even, and what is not finite stays so") {
  const std::vector<float> in{1.0f,  1.00390625f, 1.01171875f, -1.0f / 3, 0.0f,     -0.0f,
                              kInf,  -kInf,       NAN,         65504.0f,  65520.0f, 1e-8f,
                              3e38f, 1e-40f,      0x1p-24f,    0x1.004p0f};
  const std::vector<float> bf16 = RoundTrip(PlainCodec(PayloadCodec::kBf16, 16), in);
  CHECK(bf16[1] == 1.0f);       // 1 + 2^-8 lies between 1 and 1 + 2^-7: the even one
  CHECK(bf16[2] == 1.015625f);  // 1 + 3 * 2^-8: up to the even one
  CHECK(std::abs(bf16[3] + 1.0f / 3) < 1.0f / 3 * 0x1p-8f);
  CHECK(std::signbit(bf16[5]));
  CHECK(bf16[6] == kInf);
  CHECK(bf16[7] == -kInf);
  CHECK(std::isnan(bf16[8]));
  CHECK(bf16[12] == doctest::Approx(3e38).epsilon(0.004));
  const std::vector<float> fp16 = RoundTrip(PlainCodec(PayloadCodec::kFp16, 16), in);
  CHECK(fp16[9] == 65504.0f);
  CHECK(fp16[10] == kInf);
  CHECK(fp16[11] == 0.0f);
  CHECK(fp16[14] == 0x1p-24f);  // the smallest
  CHECK(fp16[15] == 0x1.004p0f);
  CHECK(std::isnan(fp16[8]));
}

TEST_CASE("a NaN stays one in bf16 for any of its bits") {
  std::vector<float> in(16, std::bit_cast<float>(0x7f800001u));
  in[1] = std::bit_cast<float>(0xffffffffu);
  const std::vector<float> out = RoundTrip(PlainCodec(PayloadCodec::kBf16, 16), in);
  for (float x : out) CHECK(std::isnan(x));
}

TEST_CASE("int8 has a scale for each block, and a block's largest value is kept") {
  std::vector<float> in(512, 0.0f);
  in[3] = 127.0f;
  in[4] = -63.4f;
  in[256 + 9] = -1e-3f;
  in[256 + 10] = 1e-3f / 254 * 1.01f;
  const std::vector<float> out = RoundTrip(PlainCodec(PayloadCodec::kInt8, 512), in);
  CHECK(out[3] == 127.0f);
  CHECK(out[4] == -63.0f);
  CHECK(out[0] == 0.0f);
  CHECK(out[256 + 9] == doctest::Approx(-1e-3f).epsilon(1e-6));
  CHECK(out[256 + 10] == doctest::Approx(1e-3f / 127).epsilon(1e-5));
}

TEST_CASE("what is not finite makes its int8 block NaN and no other") {
  for (float bad : {kInf, -kInf, static_cast<float>(NAN)}) {
    std::vector<float> in(512, 1.0f);
    in[300] = bad;
    const std::vector<float> out = RoundTrip(PlainCodec(PayloadCodec::kInt8, 512), in);
    CHECK(out[255] == 1.0f);
    CHECK(std::isnan(out[256]));
    CHECK(std::isnan(out[511]));
  }
}

TEST_CASE("an int8 block of tiny values is one of zeros") {
  const std::vector<float> out =
      RoundTrip(PlainCodec(PayloadCodec::kInt8, 16), std::vector<float>(16, 1e-37f));
  CHECK(out == std::vector<float>(16, 0.0f));
}

TEST_CASE("adding what is encoded is adding what it decodes to") {
  const TensorLayout layout = Layout();
  std::mt19937 random(6);
  std::vector<float> a(layout.float_count());
  std::vector<float> b(layout.float_count());
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(random()) * 1e-9f;
    b[i] = static_cast<float>(random()) * -1e-9f;
  }
  for (PayloadCodec kind : kEvery) {
    const ShardCodec codec({kind}, layout, {0, layout.float_count()});
    const std::vector<float> decoded = RoundTrip(codec, a);
    std::vector<std::byte> encoded(codec.encoded_bytes());
    codec.Encode(a, encoded);
    std::vector<float> sum = b;
    codec.AddDecoded(encoded, sum);
    for (size_t i = 0; i < a.size(); ++i) CHECK(sum[i] == b[i] + decoded[i]);
  }
}

TEST_CASE("encoded and decoded bits do not depend on the CPU level (P36)") {
  const TensorLayout layout = Layout();
  std::mt19937 random(7);
  std::vector<float> floats(layout.float_count());
  for (float& x : floats) x = static_cast<float>(random()) * 1e-9f - 2.0f;
  floats[3] = kInf;  // its int8 block becomes NaN
  for (PayloadCodec kind : kEvery) {
    CAPTURE(EnumName(kind));
    const ShardCodec codec({kind}, layout, {0, layout.float_count()});
    std::vector<std::vector<std::byte>> encoded;
    std::vector<std::vector<float>> sums;
    AtEachCpuLevel([&] {
      codec.Encode(floats, encoded.emplace_back(codec.encoded_bytes()));
      codec.AddDecoded(encoded.back(), sums.emplace_back(floats.size(), 1.5f));
    });
    for (const auto& each : encoded) CHECK(each == encoded.front());
    for (const auto& each : sums)
      CHECK(std::memcmp(each.data(), sums.front().data(), each.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("1-bit sends each block's means below 0 and above it") {
  std::vector<float> in(272, 0.0f);
  in[0] = -1.0f;
  in[1] = -3.0f;
  in[2] = 254.0f;  // the mean of it and 253 zeros is 1
  in[256 + 5] = -8.0f;
  const ShardCodec codec = PlainCodec(PayloadCodec::kOneBit, 272);
  CHECK(codec.encoded_bytes() == (2 * 2 * 4 + 34 + 7) / 8 * 8);
  const std::vector<float> out = RoundTrip(codec, in);
  CHECK(out[0] == -2.0f);
  CHECK(out[1] == -2.0f);
  CHECK(out[2] == 1.0f);
  CHECK(out[255] == 1.0f);
  CHECK(out[256] == 0.0f);
  CHECK(out[256 + 5] == -8.0f);
}

TEST_CASE("top-k sends the largest values as they are, of equal ones the first") {
  std::vector<float> in(320, 0.5f);
  in[7] = -9.0f;
  in[300] = 3.0f;
  const TensorLayout layout({{.name = "w", .shape = {320}}});
  const ShardCodec codec({PayloadCodec::kTopK, 0.0125}, layout, {0, 320});  // 4 of them
  CHECK(codec.encoded_bytes() == 4 * 8);
  const std::vector<float> out = RoundTrip(codec, in);
  for (size_t i = 0; i < out.size(); ++i) {
    const bool is_sent = i == 0 || i == 1 || i == 7 || i == 300;
    CHECK(out[i] == (is_sent ? in[i] : 0.0f));
  }
}

TEST_CASE("top-k sends at least one value, at most all, and what is not finite first") {
  const TensorLayout layout({{.name = "w", .shape = {16}}});
  std::vector<float> in(16, 1e30f);
  in[11] = NAN;
  const std::vector<float> one = RoundTrip({{PayloadCodec::kTopK, 1e-9}, layout, {0, 16}}, in);
  CHECK(std::isnan(one[11]));
  CHECK(one[0] == 0.0f);
  in[11] = 2;
  CHECK(RoundTrip({{PayloadCodec::kTopK, 1}, layout, {0, 16}}, in) == in);
}

TEST_CASE("the cut into shards changes no bit of a decoded value") {
  const TensorLayout layout({{.name = "a", .shape = {5000}},
                             {.name = "mean", .shape = {20}, .kind = TensorKind::kStatistic},
                             {.name = "b", .shape = {70}},
                             {.name = "c", .shape = {3000}},
                             {.name = "d", .shape = {33}},
                             MetricTensorSpec()});
  std::mt19937 random(6);
  std::normal_distribution<float> values;
  std::vector<float> floats(layout.float_count());
  for (float& x : floats) x = values(random);
  for (PayloadCodec kind : kEvery) {
    CAPTURE(static_cast<int>(kind));
    const std::vector<float> whole = RoundTrip({{kind}, layout, {0, layout.float_count()}}, floats);
    for (const size_t kib : {4, 8, 12}) {
      CAPTURE(kib);
      const ShardPlan shards(layout, {.target_bytes = kib << 10});
      REQUIRE(shards.shard_count() > 1);
      for (const ShardRange& range : shards.ranges()) {
        const auto begin = floats.begin() + static_cast<ptrdiff_t>(range.first);
        const auto end = floats.begin() + static_cast<ptrdiff_t>(range.last);
        const std::vector<float> part = RoundTrip({{kind}, layout, range}, {begin, end});
        CHECK(std::ranges::equal(part, std::span(whole).subspan(range.first, range.size())));
      }
    }
  }
}

TEST_CASE("a plan says where each encoded shard lies, and nothing of floats") {
  const TensorLayout layout({{.name = "w", .shape = {3000}}, MetricTensorSpec()});
  const ShardPlan shards(layout);
  REQUIRE(shards.shard_count() >= 2);
  const PayloadPlan exact({PayloadCodec::kFp32}, layout, shards);
  CHECK(exact.is_exact());
  CHECK(exact.codec(ShardId(0)) == nullptr);
  CHECK(exact.PayloadBytes(ShardId(0)) == shards.range(ShardId(0)).size() * 4);
  CHECK(exact.float_count() == layout.float_count());
  const PayloadPlan bf16({PayloadCodec::kBf16}, layout, shards);
  CHECK_FALSE(bf16.is_exact());
  CHECK(bf16.PayloadBytes(ShardId(0)) == bf16.codec(ShardId(0))->encoded_bytes());
  CHECK(bf16.offset(ShardId(1)) * 4 == bf16.PayloadBytes(ShardId(0)));
}

}  // namespace
}  // namespace pando
