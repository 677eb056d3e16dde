#include "plan/shard_codec.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/check.h"
#include "common/cpu/cpu_level.h"

namespace pando {
namespace {

// Each of these structs encodes a run of floats as heads, which are floats, and codes.
//
// It has HeadFloats(n) and CodeBytes(n), the sizes for n floats; Encode(x, n, heads, codes); and
// Read(heads, codes, n, to, take), which calls take(to[i], value) for each encoded float. All
// except TopKRun encode all floats.

constexpr size_t kCodecBlockFloats = 256;
size_t CodecBlocks(size_t n) { return (n + kCodecBlockFloats - 1) / kCodecBlockFloats; }

// Returns a magnitude's bits. Their order is the order of the magnitudes, and values that are not
// finite are the largest.
uint32_t MagnitudeBits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffff; }

struct Bf16Run {
  static size_t HeadFloats(size_t) { return 0; }
  static size_t CodeBytes(size_t n) { return 2 * n; }
  static uint16_t Code(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40;  // stays NaN for any lower half
    return static_cast<uint16_t>(MagnitudeBits(x) > 0x7f800000 ? nan : rounded);
  }
  static void Encode(const float* x, size_t n, float*, std::byte* codes) {
    std::transform(x, x + n, reinterpret_cast<uint16_t*>(codes), Code);
  }
  template <class Take>
  static void Read(const float*, const std::byte* codes, size_t n, float* to, const Take& take) {
    const auto* halves = reinterpret_cast<const uint16_t*>(codes);
    for (size_t i = 0; i < n; ++i) take(to[i], std::bit_cast<float>(uint32_t{halves[i]} << 16));
  }
};

// Converts eight at a time if the CPU can, which g++ 12 does not do. The bits are equal.
struct Fp16Run {
  static size_t HeadFloats(size_t) { return 0; }
  static size_t CodeBytes(size_t n) { return 2 * n; }
  static void Encode(const float* x, size_t n, float*, std::byte* codes) {
    auto* halves = reinterpret_cast<uint16_t*>(codes);
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      const __m128i eight = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + i), eight);
    }
#endif
    for (; i < n; ++i) halves[i] = std::bit_cast<uint16_t>(static_cast<_Float16>(x[i]));
  }
  static void ToFloats(const uint16_t* halves, size_t n, float* x) {
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + i));
      _mm256_storeu_ps(x + i, _mm256_cvtph_ps(eight));
    }
#endif
    for (; i < n; ++i) x[i] = static_cast<float>(std::bit_cast<_Float16>(halves[i]));
  }
  template <class Take>
  static void Read(const float*, const std::byte* codes, size_t n, float* to, const Take& take) {
    const auto* halves = reinterpret_cast<const uint16_t*>(codes);
    float block[kCodecBlockFloats];
    for (size_t first = 0; first < n; first += kCodecBlockFloats) {
      const size_t count = std::min(kCodecBlockFloats, n - first);
      ToFloats(halves + first, count, block);
      for (size_t i = 0; i < count; ++i) take(to[first + i], block[i]);
    }
  }
};

// Each block has a scale: the largest magnitude / 127.
struct Int8Run {
  static constexpr float kCodeMax = 127.0f;
  // Below this, 127 / x or x / 127 is not a normal float, so such a block becomes zeros.
  static constexpr float kSmallestScaled = 1e-35f;
  static size_t HeadFloats(size_t n) { return CodecBlocks(n); }
  static size_t CodeBytes(size_t n) { return n; }
  static float EncodeBlock(const float* x, size_t n, int8_t* codes) {
    uint32_t bits = 0;
    for (size_t i = 0; i < n; ++i) bits = std::max(bits, MagnitudeBits(x[i]));
    const auto largest = std::bit_cast<float>(bits);
    if (!(largest >= kSmallestScaled && std::isfinite(largest))) {
      std::fill_n(codes, n, int8_t{0});
      return std::isfinite(largest) ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    }
    const float inverse = kCodeMax / largest;
    for (size_t i = 0; i < n; ++i)
      codes[i] = static_cast<int8_t>(std::min(kCodeMax, std::rint(x[i] * inverse)));
    return largest / kCodeMax;
  }
  static void Encode(const float* x, size_t n, float* heads, std::byte* codes) {
    for (size_t first = 0; first < n; first += kCodecBlockFloats) {
      *heads++ = EncodeBlock(x + first, std::min(kCodecBlockFloats, n - first),
                             reinterpret_cast<int8_t*>(codes) + first);
    }
  }
  template <class Take>
  static void Read(const float* heads, const std::byte* codes, size_t n, float* to,
                   const Take& take) {
    const auto* bytes = reinterpret_cast<const int8_t*>(codes);
    for (size_t first = 0; first < n; first += kCodecBlockFloats, ++heads) {
      const size_t last = std::min(first + kCodecBlockFloats, n);
      for (size_t i = first; i < last; ++i) take(to[i], *heads * static_cast<float>(bytes[i]));
    }
  }
};

// Each block has two means, of the values below 0 and of the others. A bit selects one.
struct OneBitRun {
  static size_t HeadFloats(size_t n) { return 2 * CodecBlocks(n); }
  static size_t CodeBytes(size_t n) { return (n + 7) / 8; }
  static void Encode(const float* x, size_t n, float* heads, std::byte* codes) {
    std::fill_n(codes, CodeBytes(n), std::byte{0});
    for (size_t first = 0; first < n; first += kCodecBlockFloats, heads += 2) {
      const size_t last = std::min(first + kCodecBlockFloats, n);
      float sums[2] = {0, 0};
      size_t counts[2] = {0, 0};
      for (size_t i = first; i < last; ++i) {
        const size_t side = x[i] < 0 ? 0 : 1;
        sums[side] += x[i];
        ++counts[side];
        codes[i / 8] |= static_cast<std::byte>(side << (i % 8));
      }
      for (size_t side : {0, 1})
        heads[side] = counts[side] == 0 ? 0 : sums[side] / static_cast<float>(counts[side]);
    }
  }
  template <class Take>
  static void Read(const float* heads, const std::byte* codes, size_t n, float* to,
                   const Take& take) {
    for (size_t i = 0; i < n; ++i) {
      const auto side = static_cast<size_t>((codes[i / 8] >> (i % 8)) & std::byte{1});
      take(to[i], heads[2 * (i / kCodecBlockFloats) + side]);
    }
  }
};

// Sends of each piece of a tensor the values of the largest magnitudes, ascending by place, and
// their places in the run. Among equal magnitudes the first ones count.
struct TopKRun {
  static constexpr size_t kPiece = TensorLayout::kPieceFloats;
  double share = 0.01;
  size_t CountInPiece(size_t n) const {
    const auto count = static_cast<size_t>(std::ceil(static_cast<double>(n) * share));
    return std::clamp<size_t>(count, 1, n);
  }
  size_t Count(size_t n) const {
    return n / kPiece * CountInPiece(kPiece) + (n % kPiece == 0 ? 0 : CountInPiece(n % kPiece));
  }
  size_t HeadFloats(size_t n) const { return Count(n); }
  size_t CodeBytes(size_t n) const { return Count(n) * sizeof(uint32_t); }
  void Encode(const float* x, size_t n, float* heads, std::byte* codes) const {
    auto* places = reinterpret_cast<uint32_t*>(codes);
    for (size_t first = 0; first < n; first += kPiece) {
      const size_t last = std::min(first + kPiece, n);
      const Threshold threshold = FindThreshold({x + first, last - first});
      size_t equals_left = threshold.equal_count;
      for (size_t i = first; i < last; ++i) {
        const uint32_t magnitude = MagnitudeBits(x[i]);
        const bool is_equal = magnitude == threshold.least;
        if (magnitude < threshold.least || (is_equal && equals_left == 0)) continue;
        if (is_equal) --equals_left;
        *heads++ = x[i];
        *places++ = static_cast<uint32_t>(i);
      }
    }
  }
  template <class Take>
  void Read(const float* heads, const std::byte* codes, size_t n, float* to,
            const Take& take) const {
    const auto* places = reinterpret_cast<const uint32_t*>(codes);
    for (size_t i = 0; i < Count(n); ++i) {
      const uint32_t place = places[i];
      if (place < n) take(to[place], heads[i]);  // otherwise the peer made a mistake
    }
  }

 private:
  struct Threshold {
    uint32_t least = 0;      // the smallest magnitude that is sent
    size_t equal_count = 0;  // how many values of this magnitude are sent
  };
  Threshold FindThreshold(std::span<const float> piece) const {
    std::array<uint32_t, kPiece> magnitudes = {};
    const auto end = std::ranges::transform(piece, magnitudes.begin(), MagnitudeBits).out;
    const size_t count = CountInPiece(piece.size());
    const auto nth = magnitudes.begin() + static_cast<ptrdiff_t>(count - 1);
    std::nth_element(magnitudes.begin(), nth, end, std::greater<>());
    const auto above = std::count_if(magnitudes.begin(), nth,
                                     [nth](uint32_t magnitude) { return magnitude > *nth; });
    return {.least = *nth, .equal_count = count - static_cast<size_t>(above)};
  }
};

// Calls `use` with the struct above that the options name.
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
  const bool has_blocks =
      options.codec != PayloadCodec::kFp16 && options.codec != PayloadCodec::kBf16;
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const size_t first = std::max(layout.offset(i), shard.first);
    const size_t last = std::min(layout.offset(i + 1), shard.last);
    if (first >= last) continue;
    const bool is_exact = layout.specs()[i].kind != TensorKind::kParameter;
    // Blocks begin with a tensor or a piece of it, so that they do not depend on the shard.
    if (runs_.empty() || runs_.back().is_exact != is_exact || (!is_exact && has_blocks))
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

void ShardCodec::EncodeHere(std::span<const float> floats, std::span<std::byte> encoded) const {
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

std::vector<ShardCodec::Section> ShardCodec::Sections() const {
  std::vector<Section> all;
  Place at = sections_;
  for (const Run& run : runs_) {
    all.push_back(
        {run.first, run.count, run.is_exact, run.is_exact ? at.exact : at.heads, at.codes});
    at = After(at, run);
  }
  return all;
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

void ShardCodec::DecodeHere(std::span<const std::byte> encoded, std::span<float> floats) const {
  PANDO_CHECK(floats.size() == float_count_);
  if (options_.codec == PayloadCodec::kTopK) std::ranges::fill(floats, 0.0f);
  Read(encoded, floats.data(), [](float& to, float x) { to = x; });
}

void ShardCodec::AddDecodedHere(std::span<const std::byte> encoded, std::span<float> floats) const {
  PANDO_CHECK(floats.size() == float_count_);
  Read(encoded, floats.data(), [](float& to, float x) { to = to + x; });
}

// The loops at the chosen CPU level.
struct ShardCodecLoops {
  decltype(&ShardCodec::Encode) encode = &ShardCodec::EncodeHere;
  decltype(&ShardCodec::Decode) decode = &ShardCodec::DecodeHere;
  decltype(&ShardCodec::AddDecoded) add_decoded = &ShardCodec::AddDecodedHere;
};
PANDO_AT_EACH_CPU_LEVEL(ShardCodecLoops, ChosenCodec)

void ShardCodec::Encode(std::span<const float> floats, std::span<std::byte> encoded) const {
  (this->*ChosenCodec().encode)(floats, encoded);
}
void ShardCodec::Decode(std::span<const std::byte> encoded, std::span<float> floats) const {
  (this->*ChosenCodec().decode)(encoded, floats);
}
void ShardCodec::AddDecoded(std::span<const std::byte> encoded, std::span<float> floats) const {
  (this->*ChosenCodec().add_decoded)(encoded, floats);
}

}  // namespace pando
