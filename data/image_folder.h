// ImageFolder: photographs in folders by class, decoded on request. Called by dataset.cc. For
// evaluation the middle, 7/8 of the shorter side, is resized to side x side pixels (224, or
// data.resize). Training pictures are read in the same way, unless data.augment says "crop": then a
// part of random size and place is drawn for each epoch.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/augment.h"
#include "data/dataset.h"
#include "data/picture_cache.h"
#include "data/picture_file.h"
#include "data/picture_list.h"

namespace pando {

class ImageFolder final : public DataSet {
 public:
  static constexpr uint32_t kSideDefault = 224;

  // If a cache cannot be opened, this warns and works without it.
  static Result<std::unique_ptr<DataSet>> Open(const Job& job, const DataWarning& warn);
  // For Open, which checks the files.
  ImageFolder(const Job& job, PictureList list);

  SampleShape shape() const override { return {side_, side_, 3}; }
  uint32_t class_count() const override { return static_cast<uint32_t>(list_.class_names.size()); }
  std::vector<std::string> class_names() const override { return list_.class_names; }
  std::vector<std::string> remarks() const override;
  uint64_t sample_count(Split split) const override { return files(split).size(); }
  uint64_t fingerprint() const override { return fingerprint_; }
  Result<int32_t> Label(Split split, uint64_t index) const override {
    return files(split)[index].label;
  }
  // kCorrupt: a picture cannot be decoded. The error names it and says how to leave it out.
  Status Read(Split split, std::span<const uint64_t> indices, Batch* batch) const override;
  Status ReadAugmented(uint64_t epoch, std::span<const uint64_t> indices,
                       Batch* batch) const override;

 private:
  struct Wanted {  // of a picture
    Split split = Split::kTrain;
    uint64_t index = 0;
    std::optional<Augmenter::Name> drawn;  // its augmentation is drawn under this name
  };
  class Reader;

  Status CheckHeads() const;
  Status BadPictureError(Split split, const PictureFile& file, const Status& why) const;
  Status OpenCaches(const std::string& folder);
  Result<uint64_t> MakeFingerprint() const;
  uint64_t CacheKey() const;
  void Prepare(size_t count, Batch* batch) const;
  Status ReadOne(Reader& reader, const Wanted& wanted, size_t position, Batch* batch) const;
  Status ReadPicture(Reader& reader, const Wanted& wanted, std::span<uint8_t> out) const;

  const std::vector<PictureFile>& files(Split split) const {
    return split == Split::kTrain ? list_.train : list_.test;
  }

  const std::string root_;
  const PictureList list_;
  const uint32_t side_;
  const Augmenter augmenter_;
  mutable std::optional<PictureCache> caches_[2];  // by split
  uint64_t fingerprint_ = 0;
};

}  // namespace pando
