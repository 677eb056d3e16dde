// SyntheticImageNet: pictures like ImageNet's, drawn by the program, for benchmarks that need
// neither files nor a decoder. It has 1,000 classes, each with its colours in a grid of 8 x 8
// patches, under noise. A picture is a pure function of (split, index), made of whole numbers.
// Called by dataset.cc.
#pragma once

#include <vector>

#include "data/augment.h"
#include "data/dataset.h"

namespace pando {

class SyntheticImageNet final : public DataSet {
 public:
  static constexpr uint32_t kSideDefault = 224;
  static constexpr uint32_t kClassCount = 1000;

  explicit SyntheticImageNet(const Job& job);

  SampleShape shape() const override { return {side_, side_, 3}; }
  uint32_t class_count() const override { return kClassCount; }
  uint64_t sample_count(Split split) const override {
    return split == Split::kTrain ? train_count_ : test_count_;
  }
  uint64_t fingerprint() const override;
  Result<int32_t> Label(Split, uint64_t index) const override {
    return static_cast<int32_t>(index % kClassCount);
  }
  Status Read(Split split, std::span<const uint64_t> indices, Batch* batch) const override;
  Status ReadAugmented(uint64_t epoch, std::span<const uint64_t> indices,
                       Batch* batch) const override;

 private:
  void Draw(Split split, uint64_t index, std::span<uint8_t> pixels) const;

  const uint32_t side_;
  const uint64_t train_count_;
  const uint64_t test_count_;
  const Augmenter augmenter_;
};

}  // namespace pando
