#include "data/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "common/check.h"
#include "common/hash.h"
#include "data/skip_list.h"

namespace pando {
namespace {

// Few enough that opening all of them at the start takes at most a second.
constexpr size_t kHeadsCheckedMax = 20'000;
constexpr uint64_t kFingerprintFilesMax = 32;  // read whole, of each split, evenly spaced
constexpr size_t kHeadBytes = 8;
// One more with every change here or in resample.cc that makes other pixels from a file.
constexpr uint32_t kPictureFormat = 1;

const Normalisation& ImageNetNormalisation() {
  static const Normalisation kNormalisation{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
  return kNormalisation;
}

// 224 of 256, the usual evaluation of ImageNet.
PictureBox MiddleBox(uint32_t height, uint32_t width) {
  const uint32_t shorter = std::min(height, width);
  const uint32_t side = std::max<uint32_t>(1, (shorter * 7 + 4) / 8);
  return {(height - side) / 2, (width - side) / 2, side, side};
}

// How much smaller the JPEG decoder may make a picture that is still larger than the target.
uint32_t ChooseShrink(const PictureBox& box, uint32_t side) {
  uint32_t shrink = 1;
  while (shrink < 8 && std::min(box.height, box.width) >= 2 * shrink * side) shrink *= 2;
  return shrink;
}

// The same box in a picture that was decoded smaller.
PictureBox Shrunk(const PictureBox& box, const PictureSize& before, const PictureView& after) {
  const auto scale = [](uint32_t x, uint32_t to, uint32_t from) {
    return static_cast<uint32_t>(uint64_t{x} * to / from);
  };
  PictureBox result{scale(box.y, after.height, before.height),
                    scale(box.x, after.width, before.width),
                    std::max(1u, scale(box.height, after.height, before.height)),
                    std::max(1u, scale(box.width, after.width, before.width))};
  result.y = std::min(result.y, after.height - result.height);
  result.x = std::min(result.x, after.width - result.width);
  return result;
}

}  // namespace

// Memory and library state for one thread's reading.
class ImageFolder::Reader {
 public:
  // Decodes the file and resizes a part of it to side x side pixels.
  Status Read(const std::string& path, uint32_t side, const Augmenter& augmenter,
              std::optional<Augmenter::Name> crop, std::span<uint8_t> out) {
    Result<std::vector<uint8_t>> bytes = ReadFileBytes(path);
    if (!bytes.ok()) return bytes.status();
    Result<PictureSize> size = ReadPictureSize(*bytes);
    if (!size.ok()) return size.status();
    const PictureBox box = crop ? augmenter.DrawBox(*crop, size->height, size->width)
                                : MiddleBox(size->height, size->width);
    if (Status s = DecodePicture(*bytes, ChooseShrink(box, side), &picture_); !s.ok()) return s;
    const PictureView view = picture_.view();
    resampler_.Resize(view, Shrunk(box, *size, view), side, side, out.data());
    return Status();
  }

 private:
  DecodedPicture picture_;
  Resampler resampler_;
};

Result<std::unique_ptr<DataSet>> ImageFolder::Open(const Job& job, const DataWarning& warn) {
  Result<PictureList> list = ListPictures(job.data_path);
  if (!list.ok()) return list.status();
  if (!job.skip_list.empty()) {
    const std::string path = SkipListPath(job.skip_list, job.data_path);
    if (Status s = LeaveOut(path, &*list); !s.ok()) return s;
  }
  auto data = std::make_unique<ImageFolder>(job, *std::move(list));
  if (Status s = data->CheckHeads(); !s.ok()) return s;
  Result<uint64_t> fingerprint = data->MakeFingerprint();
  if (!fingerprint.ok()) return fingerprint.status();
  data->fingerprint_ = *fingerprint;
  if (!job.data_cache.empty()) {
    Status s = data->OpenCaches(job.data_cache);
    if (!s.ok() && warn) warn(s.message());
  }
  return std::unique_ptr<DataSet>(std::move(data));
}

ImageFolder::ImageFolder(const Job& job, PictureList list)
    : root_(job.data_path),
      list_(std::move(list)),
      side_(job.resize == 0 ? kSideDefault : job.resize),
      augmenter_(job) {}

std::vector<std::string> ImageFolder::remarks() const {
  std::vector<std::string> remarks;
  if (list_.ignored_files > 0) {
    remarks.push_back(fmt::format("{} files are ignored: they do not end in .jpg, .jpeg or .png",
                                  list_.ignored_files));
  }
  if (list_.skipped_files > 0)
    remarks.push_back(
        fmt::format("{} pictures are left out by the skip list", list_.skipped_files));
  return remarks;
}

namespace {

Status CheckHead(const std::string& path) {
  std::array<char, kHeadBytes> head{};
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    return Unavailable(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  stream.read(head.data(), head.size());
  if (stream.bad())
    return Unavailable(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  const auto got = static_cast<size_t>(stream.gcount());
  return CheckPictureHead({reinterpret_cast<const uint8_t*>(head.data()), got});
}

}  // namespace

// It is better to find a text file named .jpg now than after a day of training.
Status ImageFolder::CheckHeads() const {
  if (list_.train.size() + list_.test.size() > kHeadsCheckedMax) return Status();
  for (Split split : {Split::kTrain, Split::kTest}) {
    for (const PictureFile& file : files(split)) {
      const Status s = CheckHead(PicturePath(list_, split, file));
      if (!s.ok()) return s.code() == StatusCode::kCorrupt ? BadPictureError(split, file, s) : s;
    }
  }
  return Status();
}

Status ImageFolder::BadPictureError(Split split, const PictureFile& file, const Status& why) const {
  return Corrupt(fmt::format(
      "{}: {}: {}; mend or remove the file, or leave it out: `pando data check {}` finds all such "
      "pictures and writes a skip list, which data.skip names",
      root_, PictureName(list_, split, file), why.message(), root_));
}

// P38: every name and size, and the bytes of some files; of folders those names that PictureName
// uses.
Result<uint64_t> ImageFolder::MakeFingerprint() const {
  uint64_t hash = Hash64("imagefolder", side_);
  hash = Hash64(std::filesystem::path(list_.test_folder).filename().string(), hash);
  for (const std::string& name : list_.class_names) hash = Hash64(name, hash);
  for (Split split : {Split::kTrain, Split::kTest}) {
    const std::vector<PictureFile>& all = files(split);
    for (const PictureFile& file : all) {
      const std::array<uint64_t, 2> numbers{static_cast<uint64_t>(file.label), file.bytes};
      hash = Hash64(file.name, hash);
      hash = Hash64(std::as_bytes(std::span(numbers)), hash);
    }
    const uint64_t read_count = std::min<uint64_t>(all.size(), kFingerprintFilesMax);
    for (uint64_t r = 0; r < read_count; ++r) {
      const std::string path = PicturePath(list_, split, all[r * all.size() / read_count]);
      Result<std::vector<uint8_t>> bytes = ReadFileBytes(path);
      if (bytes.status().code() == StatusCode::kCorrupt) continue;  // its size is hashed
      if (!bytes.ok()) return NotFound(path + ": " + bytes.status().message());
      hash = Hash64(std::as_bytes(std::span(*bytes)), hash);
    }
  }
  return hash;
}

// A cache belongs to these files as they were written (by their times too), to these decoders and
// to this way of resizing.
uint64_t ImageFolder::CacheKey() const {
  uint64_t hash =
      Hash64(fmt::format("format {}, {}", kPictureFormat, PANDO_PICTURE_DECODERS), fingerprint_);
  for (Split split : {Split::kTrain, Split::kTest}) {
    for (const PictureFile& file : files(split)) {
      std::error_code ignored;
      const auto time = std::filesystem::last_write_time(PicturePath(list_, split, file), ignored);
      const int64_t ticks = time.time_since_epoch().count();
      hash = Hash64(std::as_bytes(std::span(&ticks, 1)), hash);
    }
  }
  return hash;
}

Status ImageFolder::OpenCaches(const std::string& folder) {
  const uint64_t key = CacheKey();
  for (Split split : {Split::kTrain, Split::kTest}) {
    const std::string name =
        fmt::format("{:016x}-{}.pictures", key, split == Split::kTrain ? "train" : "test");
    Result<PictureCache> cache = PictureCache::Open(folder, name, shape().size());
    if (!cache.ok()) return cache.status();
    caches_[static_cast<size_t>(split)].emplace(*std::move(cache));
  }
  return Status();
}

void ImageFolder::Prepare(size_t count, Batch* batch) const {
  batch->shape = shape();
  batch->normalisation = &ImageNetNormalisation();
  batch->values.clear();
  batch->moves.clear();
  batch->bytes.resize(count * shape().size());
  batch->labels.resize(count);
}

Status ImageFolder::Read(Split split, std::span<const uint64_t> indices, Batch* batch) const {
  Prepare(indices.size(), batch);
  Reader reader;
  for (size_t i = 0; i < indices.size(); ++i) {
    Status s = ReadOne(reader, {split, indices[i], std::nullopt}, i, batch);
    if (!s.ok()) return s;
  }
  return Status();
}

Status ImageFolder::ReadAugmented(uint64_t epoch, std::span<const uint64_t> indices,
                                  Batch* batch) const {
  Prepare(indices.size(), batch);
  Reader reader;
  for (size_t i = 0; i < indices.size(); ++i) {
    const Augmenter::Name name{epoch, indices[i]};
    Status s = ReadOne(reader, {Split::kTrain, indices[i], name}, i, batch);
    if (!s.ok()) return s;
    if (augmenter_.flips()) batch->moves.push_back({.is_flipped = augmenter_.IsFlipped(name)});
  }
  return Status();
}

Status ImageFolder::ReadOne(Reader& reader, const Wanted& wanted, size_t position,
                            Batch* batch) const {
  PANDO_CHECK(wanted.index < files(wanted.split).size());
  const PictureFile& file = files(wanted.split)[wanted.index];
  batch->labels[position] = file.label;
  const auto out = std::span(batch->bytes).subspan(position * shape().size(), shape().size());
  const Status read = ReadPicture(reader, wanted, out);
  if (read.ok()) return read;
  if (read.code() == StatusCode::kCorrupt) return BadPictureError(wanted.split, file, read);
  // The disk's trouble: another machine may be able to read the file.
  return Status(read.code(), PicturePath(list_, wanted.split, file) + ": " + read.message());
}

Status ImageFolder::ReadPicture(Reader& reader, const Wanted& wanted,
                                std::span<uint8_t> out) const {
  const std::string path = PicturePath(list_, wanted.split, files(wanted.split)[wanted.index]);
  const auto crop = augmenter_.crops() ? wanted.drawn : std::nullopt;
  std::optional<PictureCache>& cache = caches_[static_cast<size_t>(wanted.split)];
  if (crop || !cache) return reader.Read(path, side_, augmenter_, crop, out);
  if (cache->Read(wanted.index, out)) return Status();
  Status s = reader.Read(path, side_, augmenter_, crop, out);
  if (s.ok()) cache->Write(wanted.index, out);
  return s;
}

}  // namespace pando
