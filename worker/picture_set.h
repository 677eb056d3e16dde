// PictureSet: a data set whose pictures lie in memory as bytes. Made by OpenDataSet for idx files
// and for synthetic-digits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/dataset.h"

namespace pando {

struct Pictures {               // one split
  std::vector<uint8_t> pixels;  // [picture, height, width, channel]
  std::vector<uint8_t> labels;  // [picture]
};

class PictureSet final : public DataSet {
 public:
  struct Parts {
    SampleShape shape;
    uint32_t class_count = 0;
    Normalisation normalisation;
    Pictures train;
    Pictures test;
  };
  // REQUIRES: each split has shape.size() pixels for each label, and labels below class_count.
  explicit PictureSet(Parts parts);

  SampleShape shape() const override { return parts_.shape; }
  uint32_t class_count() const override { return parts_.class_count; }
  uint64_t sample_count(Split split) const override { return pictures(split).labels.size(); }
  uint64_t fingerprint() const override { return fingerprint_; }
  Status Read(Split split, std::span<const uint64_t> indices, Batch* batch) const override;

 private:
  const Pictures& pictures(Split split) const {
    return split == Split::kTrain ? parts_.train : parts_.test;
  }
  std::span<const uint8_t> Picture(Split split, uint64_t index) const;
  uint64_t MakeFingerprint() const;

  Parts parts_;
  uint64_t fingerprint_;
};

}  // namespace pando
