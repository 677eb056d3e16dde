// PictureSet is a data set whose pictures are in memory as bytes. OpenDataSet makes it for idx and
// CIFAR files and for synthetic-digits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/augmenter.h"
#include "data/dataset.h"

namespace pando {

struct Pictures {               // one split
  std::vector<uint8_t> pixels;  // [picture, height, width, channel]
  std::vector<uint8_t> labels;  // [picture]
};

class PictureSet final : public DataSet {
 public:
  struct Parts {
    SampleShape shape;  // of the stored pictures
    uint32_t class_count = 0;
    std::vector<std::string> class_names;  // empty: numbers
    Normalisation normalisation;
    Pictures train;
    Pictures test;
  };
  // `job` says whether pictures are resized and augmented; by default they are not. REQUIRES: each
  // split has shape.size() pixels for each label, and labels below class_count.
  explicit PictureSet(Parts parts, const Job& job = Job());

  SampleShape shape() const override { return shape_; }
  uint32_t class_count() const override { return parts_.class_count; }
  std::vector<std::string> class_names() const override;
  uint64_t sample_count(Split split) const override { return pictures(split).labels.size(); }
  const Normalisation* normalisation() const override { return &parts_.normalisation; }
  const Augmenter* augmenter() const override { return &augmenter_; }
  uint64_t fingerprint() const override { return fingerprint_; }
  Result<int32_t> Label(Split split, uint64_t index) const override {
    return int32_t{pictures(split).labels[index]};
  }
  Status Fill(const Samples& part, size_t place, Batch* batch) const override;

 private:
  const Pictures& pictures(Split split) const {
    return split == Split::kTrain ? parts_.train : parts_.test;
  }
  std::span<const uint8_t> Picture(Split split, uint64_t index) const;
  uint64_t MakeFingerprint() const;

  Parts parts_;
  Augmenter augmenter_;
  SampleShape shape_;  // after resizing
  uint64_t fingerprint_;
};

}  // namespace pando
