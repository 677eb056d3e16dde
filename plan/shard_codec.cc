#include "plan/shard_codec.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "plan/run_codec.h"

namespace pando {
namespace {

// Calls `use` with the run codec of the options.
template <class Use>
void WithRunCodec(const PayloadOptions& options, const Use& use) {
  switch (options.codec) {
    case PayloadCodec::kFp16:
      return use(Fp16Run());
    case PayloadCodec::kBf16:
      return use(Bf16Run());
    case PayloadCodec::kInt8:
      return use(Int8Run());
    case PayloadCodec::kOneBit:
      return use(OneBitRun());
    case PayloadCodec::kTopK:
      return use(TopKRun{options.top_k_share});
    case PayloadCodec::kFp32:
      break;
  }
  PANDO_CHECK(false);
}

}  // namespace

ShardCodec::ShardCodec(const PayloadOptions& options, const TensorLayout& layout,
                       const ShardRange& shard)
    : options_(options), float_count_(shard.size()) {
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const size_t first = std::max(layout.offset(i), shard.first);
    const size_t last = std::min(layout.offset(i + 1), shard.last);
    if (first >= last) continue;
    const bool is_exact = layout.specs()[i].kind != TensorKind::kParameter;
    if (runs_.empty() || runs_.back().is_exact != is_exact)
      runs_.push_back({first - shard.first, 0, is_exact});
    runs_.back().count += last - first;
  }
  Place sizes;
  for (const Run& run : runs_) sizes = After(sizes, run);
  sections_ = {.exact = 0, .heads = sizes.exact, .codes = sizes.exact + sizes.heads};
  encoded_bytes_ = (sections_.codes + sizes.codes + 7) / 8 * 8;
}

ShardCodec::Place ShardCodec::After(const Place& place, const Run& run) const {
  Place after = place;
  if (run.is_exact) {
    after.exact += run.count * sizeof(float);
    return after;
  }
  WithRunCodec(options_, [&](const auto& codec) {
    after.heads += codec.HeadFloats(run.count) * sizeof(float);
    after.codes += codec.CodeBytes(run.count);
  });
  return after;
}

void ShardCodec::Encode(std::span<const float> floats, std::span<std::byte> encoded) const {
  PANDO_CHECK(floats.size() == float_count_ && encoded.size() == encoded_bytes_);
  Place at = sections_;
  for (const Run& run : runs_) {
    const float* x = floats.data() + run.first;
    if (run.is_exact) {
      std::memcpy(encoded.data() + at.exact, x, run.count * sizeof(float));
    } else {
      WithRunCodec(options_, [&](const auto& codec) {
        codec.Encode(x, run.count, reinterpret_cast<float*>(encoded.data() + at.heads),
                     encoded.data() + at.codes);
      });
    }
    at = After(at, run);
  }
  std::fill(encoded.begin() + static_cast<ptrdiff_t>(at.codes), encoded.end(), std::byte{0});
}

template <class Take>
void ShardCodec::Read(std::span<const std::byte> encoded, float* floats, const Take& take) const {
  PANDO_CHECK(encoded.size() == encoded_bytes_);
  Place at = sections_;
  for (const Run& run : runs_) {
    float* to = floats + run.first;
    if (run.is_exact) {
      const auto* exact = reinterpret_cast<const float*>(encoded.data() + at.exact);
      for (size_t i = 0; i < run.count; ++i) take(to[i], exact[i]);
    } else {
      WithRunCodec(options_, [&](const auto& codec) {
        codec.Read(reinterpret_cast<const float*>(encoded.data() + at.heads),
                   encoded.data() + at.codes, run.count, to, take);
      });
    }
    at = After(at, run);
  }
}

void ShardCodec::Decode(std::span<const std::byte> encoded, std::span<float> floats) const {
  PANDO_CHECK(floats.size() == float_count_);
  if (options_.codec == PayloadCodec::kTopK) std::ranges::fill(floats, 0.0f);
  Read(encoded, floats.data(), [](float& to, float x) { to = x; });
}

void ShardCodec::AddDecoded(std::span<const std::byte> encoded, std::span<float> floats) const {
  PANDO_CHECK(floats.size() == float_count_);
  Read(encoded, floats.data(), [](float& to, float x) { to = to + x; });
}

PayloadPlan::PayloadPlan(const PayloadOptions& options, const TensorLayout& layout,
                         const ShardPlan& shards)
    : codec_(options.codec) {
  offsets_.push_back(0);
  for (const ShardRange& range : shards.ranges()) {
    if (codec_ != PayloadCodec::kFp32) codecs_.emplace_back(options, layout, range);
    const size_t floats =
        is_exact() ? range.size() : codecs_.back().encoded_bytes() / sizeof(float);
    offsets_.push_back(offsets_.back() + floats);
  }
}

bool PayloadPlan::has_feedback() const {
  return codec_ == PayloadCodec::kTopK || codec_ == PayloadCodec::kOneBit;
}

size_t PayloadPlan::PayloadBytes(ShardId shard) const {
  return (offsets_[shard.value() + 1] - offsets_[shard.value()]) * sizeof(float);
}

}  // namespace pando
