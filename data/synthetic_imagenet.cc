#include "data/synthetic_imagenet.h"

#include <algorithm>
#include <array>

#include "common/check.h"
#include "common/hash.h"
#include "common/philox.h"

namespace pando {
namespace {

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

}  // namespace

SyntheticImageNet::SyntheticImageNet(const Job& job)
    : side_(job.resize == 0 ? kSideDefault : job.resize),
      train_count_(job.synthetic_train_samples),
      test_count_(job.synthetic_test_samples),
      augmenter_(job) {}

uint64_t SyntheticImageNet::fingerprint() const {
  const std::array<uint64_t, 3> sizes{side_, train_count_, test_count_};
  return Hash64(std::as_bytes(std::span(sizes)), Hash64("synthetic-imagenet"));
}

Status SyntheticImageNet::Read(Split split, std::span<const uint64_t> indices, Batch* batch) const {
  const size_t picture_bytes = shape().size();
  batch->shape = shape();
  batch->normalisation = &HalfGray();
  batch->values.clear();
  batch->moves.clear();
  batch->bytes.resize(indices.size() * picture_bytes);
  batch->labels.resize(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    PANDO_CHECK(indices[i] < sample_count(split));
    Draw(split, indices[i], std::span(batch->bytes).subspan(i * picture_bytes, picture_bytes));
    batch->labels[i] = static_cast<int32_t>(indices[i] % kClassCount);
  }
  return Status();
}

// A crop is a shift here, so the parts outside of it are not drawn.
Status SyntheticImageNet::ReadAugmented(uint64_t epoch, std::span<const uint64_t> indices,
                                        Batch* batch) const {
  if (Status s = Read(Split::kTrain, indices, batch); !s.ok()) return s;
  DrawMoves(augmenter_, epoch, indices, batch);
  return Status();
}

// Half class, half noise.
void SyntheticImageNet::Draw(Split split, uint64_t index, std::span<uint8_t> pixels) const {
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

}  // namespace pando
