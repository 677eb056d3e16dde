#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "common/check.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/cpu_ops.h"

namespace pando::cpu {

void ActivationForward(size_t count, const float* x, Activation activation, float* y) {
  WithActivation(activation, [&]<Activation kActivation>() {
    for (size_t i = 0; i < count; ++i) y[i] = Activate<kActivation>(x[i]);
  });
}

void AddForward(size_t count, const float* a, const float* b, Activation activation, float* y) {
  WithActivation(activation, [&]<Activation kActivation>() {
    for (size_t i = 0; i < count; ++i) y[i] = Activate<kActivation>(a[i] + b[i]);
  });
}

void ActivationBackward(size_t count, const float* y, Activation activation, const float* dy,
                        float* dx) {
  WithActivation(activation, [&]<Activation kActivation>() {
    for (size_t i = 0; i < count; ++i) dx[i] = Passes<kActivation>(y, i) ? dy[i] : 0.0f;
  });
}

void AddInPlace(size_t count, const float* x, float* y) {
  for (size_t i = 0; i < count; ++i) y[i] += x[i];
}

void Multiply(size_t count, const float* x, const float* factor, float* y) {
  for (size_t i = 0; i < count; ++i) y[i] = x[i] * factor[i];
}

void MultiplyChannels(uint32_t sample_count, const SampleShape& shape, const float* x,
                      const float* factor, float* y) {
  const size_t pixels = size_t{shape.height} * shape.width;
  for (size_t s = 0; s < sample_count; ++s, factor += shape.channels) {
    for (size_t p = 0; p < pixels; ++p, x += shape.channels, y += shape.channels) {
      for (size_t c = 0; c < shape.channels; ++c) y[c] = x[c] * factor[c];
    }
  }
}

void Copy(size_t count, const float* x, float* y) { std::copy_n(x, count, y); }

void ScaleFloats(size_t count, const float* x, float factor, float* y) {
  for (size_t i = 0; i < count; ++i) y[i] = x[i] * factor;
}

void ScaleFloatsInPlace(size_t count, const float* factor, float* x) {
  ScaleFloats(count, x, *factor, x);
}

void AddFloats(size_t count, const float* x, float* y) {
  const float* __restrict from = x;
  float* __restrict sum = y;
  for (size_t i = 0; i < count; ++i) sum[i] += from[i];
}

void DropoutFactors(PhiloxKey key, const PassNumbers* numbers, float probability, size_t count,
                    float* factor) {
  constexpr size_t kPerBlock = 8;
  const auto threshold = static_cast<uint32_t>(std::lround(probability * 65536.0f));
  const float keep_scale = 1.0f / (1.0f - probability);
  for (size_t first = 0; first < count; first += kPerBlock) {
    const PhiloxBlock block =
        Philox4x32({static_cast<uint32_t>(first / kPerBlock), static_cast<uint32_t>(numbers->step),
                    static_cast<uint32_t>(numbers->step >> 32), numbers->micro_batch},
                   key);
    const size_t last = std::min(count, first + kPerBlock);
    for (size_t i = first; i < last; ++i) {
      const bool keep = Uniform16(block, static_cast<unsigned>(i - first)) >= threshold;
      factor[i] = keep ? keep_scale : 0.0f;
    }
  }
}

namespace {

// Returns how many classes are ahead of the label; for a NaN logit more than there are classes.
size_t ClassesAhead(std::span<const float> logits, size_t label) {
  if (std::isnan(logits[label])) return SIZE_MAX;
  size_t ahead = 0;
  for (size_t c = 0; c < logits.size(); ++c) {
    ahead += logits[c] > logits[label] || (c < label && logits[c] == logits[label]);
  }
  return ahead;
}

}  // namespace

size_t CrossEntropyScratchBytes(uint32_t) { return 0; }

void SoftmaxCrossEntropy(const CrossEntropyArgs& args, std::span<std::byte>) {
  const size_t class_count = args.class_count;
  const auto* logits = static_cast<const float*>(args.logits);
  auto* dlogits = static_cast<float*>(args.dlogits);
  const float every_share = args.label_smoothing / static_cast<float>(class_count);
  const float label_share = 1.0f - args.label_smoothing;
  CrossEntropyScore score;
  for (size_t s = 0; s < args.sample_count; ++s, logits += class_count, dlogits += class_count) {
    const auto label = static_cast<size_t>(args.labels[s]);
    PANDO_CHECK(label < class_count);
    const float largest = *std::max_element(logits, logits + class_count);
    float sum = 0.0f, logit_sum = 0.0f;
    for (size_t c = 0; c < class_count; ++c) {
      dlogits[c] = std::exp(logits[c] - largest);
      sum += dlogits[c];
      logit_sum += logits[c] - largest;
    }
    for (size_t c = 0; c < class_count; ++c) dlogits[c] = dlogits[c] / sum - every_share;
    dlogits[label] -= label_share;
    for (size_t c = 0; c < class_count && args.gradient_scale != nullptr; ++c)
      dlogits[c] *= *args.gradient_scale;
    score.loss_sum += std::log(sum) - label_share * (logits[label] - largest);
    if (every_share > 0.0f) score.loss_sum -= every_share * logit_sum;  // 0 · −∞ is not 0
    const size_t ahead = ClassesAhead({logits, class_count}, label);
    score.correct_count += ahead == 0;
    score.top5_count += ahead < 5;
  }
  *args.score = score;
}

void ScoreToFloats(const CrossEntropyScore* score, float* loss_and_correct) {
  loss_and_correct[0] = static_cast<float>(score->loss_sum);
  loss_and_correct[1] = static_cast<float>(score->correct_count);
}

namespace {

size_t ValueCount(const DeviceBatch& batch) { return batch.sample_count * batch.shape.size(); }

// Moves the bytes of one picture: [y, x, channel].
void MovePicture(const SampleShape& shape, PictureMove move, const uint8_t* from, uint8_t* to) {
  for (uint32_t y = 0; y < shape.height; ++y) {
    for (uint32_t x = 0; x < shape.width; ++x, to += shape.channels) {
      const int64_t pixel = SourcePixel(shape, move, y, x);
      if (pixel < 0) {
        std::fill_n(to, shape.channels, uint8_t{0});
      } else {
        std::copy_n(from + static_cast<size_t>(pixel) * shape.channels, shape.channels, to);
      }
    }
  }
}

// Imports the batch without repeated channels: [pixel, channel].
void ImportOwnChannels(const DeviceBatch& batch, float* x) {
  if (batch.bytes == nullptr) {
    std::copy_n(batch.values, ValueCount(batch), x);
    return;
  }
  const size_t channels = batch.shape.channels;
  for (size_t c = 0; c < channels; ++c) {
    const float* values = batch.byte_values + 256 * c;
    for (size_t i = c; i < ValueCount(batch); i += channels) x[i] = values[batch.bytes[i]];
  }
}

// Imports moved pictures one by one, so that the moved bytes stay in the cache.
void ImportMoved(const DeviceBatch& batch, uint32_t channels, float* x, int32_t* labels) {
  const size_t size = batch.shape.size(), out_size = size / batch.shape.channels * channels;
  std::vector<uint8_t> moved(size);
  for (uint32_t s = 0; s < batch.sample_count; ++s) {
    MovePicture(batch.shape, batch.moves[s], batch.bytes + s * size, moved.data());
    const DeviceBatch one{.shape = batch.shape,
                          .sample_count = 1,
                          .labels = batch.labels + s,
                          .byte_values = batch.byte_values,
                          .bytes = moved.data()};
    ImportBatch(one, channels, x + s * out_size, labels + s);
  }
}

}  // namespace

void ImportBatch(const DeviceBatch& batch, uint32_t channels, float* x, int32_t* labels) {
  if (batch.moves != nullptr) return ImportMoved(batch, channels, x, labels);
  std::copy_n(batch.labels, batch.sample_count, labels);
  if (channels == batch.shape.channels) return ImportOwnChannels(batch, x);
  if (batch.bytes == nullptr) {
    for (size_t i = 0; i < ValueCount(batch); ++i) x = std::fill_n(x, channels, batch.values[i]);
    return;
  }
  for (size_t i = 0; i < ValueCount(batch); ++i)
    x = std::fill_n(x, channels, batch.byte_values[batch.bytes[i]]);
}

void ExportFloats(size_t count, const float* x, float* host) { Copy(count, x, host); }

void TransposeSamples(uint32_t sample_count, uint32_t rows, uint32_t columns, const float* x,
                      float* y) {
  for (size_t s = 0; s < sample_count; ++s, x += size_t{rows} * columns) {
    for (size_t c = 0; c < columns; ++c) {
      for (size_t r = 0; r < rows; ++r) *y++ = x[r * columns + c];
    }
  }
}

}  // namespace pando::cpu
