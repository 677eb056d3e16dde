// Subset: some samples of a data set, drawn from the seed. Made by OpenDataSet for data.limit and
// data.test_limit.
#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/permutation.h"

namespace pando {

// Threads: as a data set. Every worker has the same samples, because they follow from the seed.
class Subset final : public DataSet {
 public:
  struct Limits {  // samples; 0, or more than exist: all
    uint64_t train = 0;
    uint64_t test = 0;
  };
  Subset(std::unique_ptr<DataSet> whole, Limits limits, uint64_t seed);

  SampleShape shape() const override { return whole_->shape(); }
  uint32_t class_count() const override { return whole_->class_count(); }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  std::vector<std::string> remarks() const override { return whole_->remarks(); }
  uint64_t sample_count(Split split) const override { return counts_[static_cast<size_t>(split)]; }
  uint64_t fingerprint() const override;
  Result<int32_t> Label(Split split, uint64_t index) const override {
    return whole_->Label(split, InWhole(split, std::span(&index, 1))[0]);
  }
  Status Read(Split split, std::span<const uint64_t> indices, Batch* batch) const override;
  Status ReadAugmented(uint64_t epoch, std::span<const uint64_t> indices,
                       Batch* batch) const override;

 private:
  std::vector<uint64_t> InWhole(Split split, std::span<const uint64_t> indices) const;

  const std::unique_ptr<DataSet> whole_;
  const uint64_t seed_;
  uint64_t counts_[2];
};

}  // namespace pando
