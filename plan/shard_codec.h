// ShardCodec encodes the floats of one shard in fewer bits (P34). PayloadPlan has one for each
// shard. Workers encode gradients and servers decode them; parameters go the other way. Statistics
// and metrics always travel as floats. Threads: any; immutable.
//
//   encoded shard:  exact floats  of statistic and metric tensors, in the shard's order
//                   heads         floats: a block's scale (int8), its two means (1-bit), values
//                                 (top-k)
//                   codes         of the parameters, in the shard's order: 2 bytes each (fp16,
//                                 bf16), 1 (int8), 1 bit, or the places of the values (top-k)
//                   zeros         to a multiple of 8 bytes
//
// Adjacent parameters are encoded as one run, with int8, 1-bit and top-k those of one tensor, so
// that their blocks and pieces do not depend on the cut into shards.
// fp16 and bf16: the nearest value, ties to even. A value that is too large for fp16 becomes
// infinite.
// int8: for each block of 256, scale = the largest magnitude / 127, and code = value / scale,
// rounded to nearest: the error is at most scale / 2. A block with a value that is not finite
// decodes to NaN. Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016.
// 1-bit: for each block the means of the values below 0 and of the others, and a bit per value.
// Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014, section 3, with blocks
// instead of columns.
// top-k: of each piece (tensor_layout.h) the values of the largest magnitudes; the others become 0.
// Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017.
// With the last two, the error must be added to the next gradient (train/error_feedback).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "plan/job.h"
#include "plan/shard_plan.h"
#include "plan/tensor_layout.h"

namespace pando {

struct PayloadOptions {
  PayloadCodec codec = PayloadCodec::kFp32;
  double top_k_share = 0.01;  // the share of a piece's values that is sent
};

class ShardCodec {
 public:
  // REQUIRES: options.codec is not kFp32.
  ShardCodec(const PayloadOptions& options, const TensorLayout& layout, const ShardRange& shard);

  size_t float_count() const { return float_count_; }
  size_t encoded_bytes() const { return encoded_bytes_; }  // a multiple of 8
  // REQUIRES for all: `floats` has float_count() floats, and `encoded` has encoded_bytes() bytes
  // and is aligned to 4.
  void Encode(std::span<const float> floats, std::span<std::byte> encoded) const;
  void Decode(std::span<const std::byte> encoded, std::span<float> floats) const;
  // Adds the decoded values to `floats`.
  void AddDecoded(std::span<const std::byte> encoded, std::span<float> floats) const;

  // Section is adjacent floats of the shard and their places in the encoded shard, for a GPU, which
  // encodes and decodes by itself (train/gpu/device_codec).
  struct Section {
    size_t first = 0;  // a float of the shard
    size_t count = 0;
    bool is_exact = false;
    size_t heads_at = 0;  // bytes; if is_exact, the floats are here
    size_t codes_at = 0;
  };
  std::vector<Section> Sections() const;

 private:
  friend struct ShardCodecLoops;
  struct Run {  // floats of the shard with the same codec
    size_t first = 0;
    size_t count = 0;
    bool is_exact = false;
  };
  struct Place {  // bytes of the encoded shard
    size_t exact = 0;
    size_t heads = 0;
    size_t codes = 0;
  };
  // Do the work of Encode, Decode and AddDecoded, compiled for one CPU level.
  void EncodeHere(std::span<const float> floats, std::span<std::byte> encoded) const;
  void DecodeHere(std::span<const std::byte> encoded, std::span<float> floats) const;
  void AddDecodedHere(std::span<const std::byte> encoded, std::span<float> floats) const;
  Place After(const Place& place, const Run& run) const;
  template <class Take>
  void Read(std::span<const std::byte> encoded, float* floats, const Take& take) const;

  PayloadOptions options_;
  std::vector<Run> runs_;
  Place sections_;  // where each kind of bytes begins
  size_t float_count_;
  size_t encoded_bytes_ = 0;
};

}  // namespace pando
