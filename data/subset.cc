#include "data/subset.h"

#include <algorithm>
#include <array>
#include <limits>

#include "common/check.h"
#include "common/hash.h"

namespace pando {
namespace {

// The shuffle that chooses samples differs from each epoch's shuffle.
constexpr uint64_t kChoiceOfTrain = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kChoiceOfTest = kChoiceOfTrain - 1;

uint64_t Limited(uint64_t count, uint64_t limit) {
  return limit == 0 ? count : std::min(count, limit);
}

}  // namespace

Subset::Subset(std::unique_ptr<DataSet> whole, Limits limits, uint64_t seed)
    : whole_(std::move(whole)),
      seed_(seed),
      counts_{Limited(whole_->sample_count(Split::kTrain), limits.train),
              Limited(whole_->sample_count(Split::kTest), limits.test)} {}

uint64_t Subset::fingerprint() const {
  const std::array<uint64_t, 3> numbers{counts_[0], counts_[1], seed_};
  return Hash64(std::as_bytes(std::span(numbers)), whole_->fingerprint());
}

Status Subset::Read(Split split, std::span<const uint64_t> indices, Batch* batch) const {
  return whole_->Read(split, InWhole(split, indices), batch);
}

Status Subset::ReadAugmented(uint64_t epoch, std::span<const uint64_t> indices,
                             Batch* batch) const {
  return whole_->ReadAugmented(epoch, InWhole(Split::kTrain, indices), batch);
}

std::vector<uint64_t> Subset::InWhole(Split split, std::span<const uint64_t> indices) const {
  std::vector<uint64_t> result(indices.begin(), indices.end());
  const uint64_t whole_count = whole_->sample_count(split);
  for (uint64_t index : result) PANDO_CHECK(index < sample_count(split));
  if (sample_count(split) == whole_count) return result;
  const Permutation choice(whole_count, seed_,
                           split == Split::kTrain ? kChoiceOfTrain : kChoiceOfTest);
  for (uint64_t& index : result) index = choice.At(index);
  return result;
}

}  // namespace pando
