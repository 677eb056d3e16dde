// ShardCodec: how the floats of one shard travel in fewer bits (P34), and PayloadPlan, how those of
// all do. Gradients are encoded by workers and decoded by servers, parameters the other way.
// Statistics and metrics always travel as they are. Threads: any; immutable.
//
//   encoded shard:  exact floats  of statistic and metric tensors, in the shard's order
//                   heads         floats: a block's scale (int8), its two means (1-bit), values
//                                 (top-k)
//                   codes         of the parameters, in the shard's order: 2 bytes each (fp16,
//                                 bf16), 1 (int8), 1 bit, or the places of the values (top-k)
//                   zeros         to a multiple of 8 bytes
//
// Parameters that lie side by side are encoded as one run.
// fp16 and bf16: the nearest, ties to even; what is too large for fp16 is infinite.
// int8: of each block of 256, scale = the largest magnitude / 127, code = value / scale, rounded
// likewise: an error is at most scale / 2. A block with a value that is not finite decodes to NaN.
// Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016.
// 1-bit: of each block the means of the values below 0 and of the others, and which is which. Seide
// et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014, section 3, with blocks for
// columns. top-k: the values of the largest magnitudes, the others are 0. Aji and Heafield, "Sparse
// Communication for Distributed Gradient Descent", EMNLP 2017.
// The last two want what is lost to be added to the next gradient (worker/error_feedback).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/job.h"
#include "common/tensor_layout.h"

namespace pando {

struct PayloadOptions {
  PayloadCodec codec = PayloadCodec::kFp32;
  double top_k_share = 0.01;  // of a run's values, that travel
};

class ShardCodec {
 public:
  // REQUIRES: options.codec is not kFp32.
  ShardCodec(const PayloadOptions& options, const TensorLayout& layout, const ShardRange& shard);

  size_t float_count() const { return float_count_; }
  size_t encoded_bytes() const { return encoded_bytes_; }  // a multiple of 8
  // REQUIRES of all: `floats` has float_count() of them and `encoded` encoded_bytes(), aligned
  // to 4.
  void Encode(std::span<const float> floats, std::span<std::byte> encoded) const;
  void Decode(std::span<const std::byte> encoded, std::span<float> floats) const;
  // floats += what is encoded.
  void AddDecoded(std::span<const std::byte> encoded, std::span<float> floats) const;

 private:
  struct Run {  // floats of the shard that travel alike
    size_t first = 0;
    size_t count = 0;
    bool is_exact = false;
  };
  struct Place {  // bytes of the encoded shard
    size_t exact = 0;
    size_t heads = 0;
    size_t codes = 0;
  };
  Place After(const Place& place, const Run& run) const;
  template <class Take>
  void Read(std::span<const std::byte> encoded, float* floats, const Take& take) const;

  PayloadOptions options_;
  std::vector<Run> runs_;
  Place sections_;  // where they begin
  size_t float_count_;
  size_t encoded_bytes_ = 0;
};

// In what form somebody wants a shard's parameters.
enum class ParamsForm : uint8_t {
  kExact,    // the floats: for evaluation, and for training where nothing is encoded
  kEncoded,  // by the job's pull codec: for training
};

class PayloadPlan {
 public:
  PayloadPlan(const PayloadOptions& options, const TensorLayout& layout, const ShardPlan& shards);

  // Whether floats travel as they are. Nothing is encoded then.
  bool is_exact() const { return codecs_.empty(); }
  // Whether what is lost is to be added to the next gradient of the micro-batch: then what is sent
  // depends on what was sent before, and by whom.
  bool has_feedback() const;
  // Null where they travel as they are.
  const ShardCodec* CodecOf(ShardId shard) const {
    return is_exact() ? nullptr : &codecs_[shard.value()];
  }
  size_t PayloadBytes(ShardId shard) const;
  // Floats that a vector of all encoded shards takes, and where a shard begins in it.
  size_t float_count() const { return offsets_.back(); }
  size_t OffsetOf(ShardId shard) const { return offsets_[shard.value()]; }

 private:
  PayloadCodec codec_;
  std::vector<ShardCodec> codecs_;  // by shard; none where floats travel as they are
  std::vector<size_t> offsets_;     // by shard, and the end: floats
};

}  // namespace pando
