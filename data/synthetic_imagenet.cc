// Pictures like ImageNet's, drawn by the program, for benchmarks that need neither files nor a
// decoder. There are 1,000 classes, each with its colours in a grid of 8 x 8 patches, under noise.
// A picture is a pure function of (split, index), made of whole numbers.
#include <algorithm>
#include <array>

#include "common/check.h"
#include "common/hash.h"
#include "common/philox.h"
#include "data/augment.h"
#include "data/kinds.h"

namespace pando {
namespace {

constexpr uint32_t kSideDefault = 224;
constexpr uint32_t kClassCount = 1000;
constexpr uint32_t kPatches = 8;  // per side
constexpr size_t kPatchBytes = kPatches * kPatches * 3;
using Patches = std::array<uint8_t, kPatchBytes>;

const Normalisation& HalfGray() {
  static const Normalisation kNormalisation{{0.5f, 0.5f, 0.5f}, {0.2f, 0.2f, 0.2f}};
  return kNormalisation;
}

// Fills `out` with the bytes of blocks 0, 1, ... of the counter (block, low, high, 0).
void FillRandom(PhiloxKey key, uint64_t index, std::span<uint8_t> out) {
  const auto low = static_cast<uint32_t>(index), high = static_cast<uint32_t>(index >> 32);
  for (size_t at = 0; at < out.size(); at += sizeof(PhiloxBlock)) {
    const auto number = static_cast<uint32_t>(at / sizeof(PhiloxBlock));
    const PhiloxBlock block = Philox4x32({number, low, high, 0}, key);
    const auto bytes = std::as_bytes(std::span(block));
    const size_t size = std::min(bytes.size(), out.size() - at);
    for (size_t i = 0; i < size; ++i) out[at + i] = static_cast<uint8_t>(bytes[i]);
  }
}

PhiloxKey MakeKey(const char* what) { return MakePhiloxKey(0, RandomPurpose::kSynthetic, what); }

class SyntheticImageNet final : public DataSet {
 public:
  explicit SyntheticImageNet(const Job& job)
      : side_(job.resize == 0 ? kSideDefault : job.resize),
        train_count_(job.synthetic_train_samples),
        test_count_(job.synthetic_test_samples),
        augmenter_(job) {}

  SampleShape shape() const override { return {side_, side_, 3}; }
  uint32_t class_count() const override { return kClassCount; }
  uint64_t sample_count(Split split) const override {
    return split == Split::kTrain ? train_count_ : test_count_;
  }
  uint64_t fingerprint() const override {
    const std::array<uint64_t, 3> sizes{side_, train_count_, test_count_};
    return Hash64(std::as_bytes(std::span(sizes)), Hash64("synthetic-imagenet"));
  }
  Result<int32_t> Label(Split, uint64_t index) const override {
    return static_cast<int32_t>(index % kClassCount);
  }
  Status Read(Split split, std::span<const uint64_t> indices, Batch* batch) const override {
    PreparePictures(shape(), HalfGray(), indices.size(), batch);
    const size_t picture_bytes = shape().size();
    for (size_t i = 0; i < indices.size(); ++i) {
      PANDO_CHECK(indices[i] < sample_count(split));
      Draw(split, indices[i], std::span(batch->bytes).subspan(i * picture_bytes, picture_bytes));
      batch->labels[i] = static_cast<int32_t>(indices[i] % kClassCount);
    }
    return Status();
  }

 private:
  // A crop is a shift here, so the parts outside of it are not drawn.
  const Augmenter* augmenter() const override { return &augmenter_; }

  // Half class, half noise.
  void Draw(Split split, uint64_t index, std::span<uint8_t> pixels) const {
    Patches colours;
    FillRandom(MakeKey("class"), index % kClassCount, colours);
    FillRandom(MakeKey(split == Split::kTrain ? "train" : "test"), index, pixels);
    uint8_t* out = pixels.data();
    for (uint32_t y = 0; y < side_; ++y) {
      const uint8_t* row = &colours[size_t{y * kPatches / side_} * kPatches * 3];
      for (uint32_t x = 0; x < side_; ++x) {
        const uint8_t* colour = row + size_t{x * kPatches / side_} * 3;
        for (uint32_t c = 0; c < 3; ++c, ++out)
          *out = static_cast<uint8_t>((*out >> 1) + (colour[c] >> 1));
      }
    }
  }

  const uint32_t side_;
  const uint64_t train_count_;
  const uint64_t test_count_;
  const Augmenter augmenter_;
};

}  // namespace

OpenedDataSet OpenSyntheticImageNet(const Job& job, const DataWarning&) {
  return OpenedDataSet(std::make_unique<SyntheticImageNet>(job));
}

}  // namespace pando
