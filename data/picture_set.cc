#include "data/picture_set.h"

#include <algorithm>
#include <array>

#include "common/check.h"
#include "common/hash.h"

namespace pando {
namespace {

constexpr uint64_t kFingerprintRecordsMax = 256;  // records of each split, evenly spaced

}  // namespace

PictureSet::PictureSet(Parts parts, const Job& job)
    : parts_(std::move(parts)), augmenter_(job), shape_(parts_.shape) {
  for (const Pictures* split : {&parts_.train, &parts_.test}) {
    PANDO_CHECK(split->pixels.size() == split->labels.size() * parts_.shape.size());
  }
  if (job.resize != 0) shape_.height = shape_.width = job.resize;
  fingerprint_ = MakeFingerprint();
}

std::vector<std::string> PictureSet::class_names() const {
  return parts_.class_names.empty() ? DataSet::class_names() : parts_.class_names;
}

Status PictureSet::Fill(const Samples& part, size_t place, Batch* batch) const {
  Resampler resampler;
  DrawMoves(part, place, batch);
  for (const uint64_t index : part.indices) {
    std::span<const uint8_t> picture = Picture(part.split, index);
    uint8_t* out = batch->bytes.data() + place * shape_.size();
    const SampleShape& raw = parts_.shape;
    if (raw == shape_) {
      std::copy(picture.begin(), picture.end(), out);
    } else {
      resampler.Resize({picture.data(), raw.height, raw.width, raw.channels},
                       {0, 0, raw.height, raw.width}, shape_.height, shape_.width, out);
    }
    batch->labels[place++] = pictures(part.split).labels[index];
  }
  return Status();
}

std::span<const uint8_t> PictureSet::Picture(Split split, uint64_t index) const {
  PANDO_CHECK(index < sample_count(split));
  const size_t picture_bytes = parts_.shape.size();
  return std::span(pictures(split).pixels).subspan(index * picture_bytes, picture_bytes);
}

// The hash of each record seeds the next one's, so their order counts (P38). Numbers are hashed as
// they are in memory: all machines of a job are little-endian, like the wire.
uint64_t PictureSet::MakeFingerprint() const {
  const std::array<uint64_t, 6> sizes{parts_.shape.height,         parts_.shape.width,
                                      parts_.shape.channels,       parts_.class_count,
                                      sample_count(Split::kTrain), sample_count(Split::kTest)};
  uint64_t hash = Hash64(std::as_bytes(std::span(sizes)));
  for (Split split : {Split::kTrain, Split::kTest}) {
    const uint64_t count = sample_count(split);
    const uint64_t record_count = std::min(count, kFingerprintRecordsMax);
    for (uint64_t r = 0; r < record_count; ++r) {
      const uint64_t index = r * count / record_count;
      hash = Hash64(std::as_bytes(Picture(split, index)), hash);
      hash = Hash64(std::as_bytes(std::span(&pictures(split).labels[index], 1)), hash);
    }
  }
  return hash;
}

}  // namespace pando
