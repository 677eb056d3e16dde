// A data set of photographs in folders by class, decoded on request. For evaluation the middle, 7/8
// of the shorter side, is resized to side x side pixels (224, or data.resize). Training pictures
// are read in the same way, unless data.augment has "crop": then a part of random size and place is
// drawn for each epoch.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/hash.h"
#include "common/result.h"
#include "common/text.h"
#include "common/unique_fd.h"
#include "data/augmenter.h"
#include "data/kinds.h"
#include "data/picture_file.h"
#include "data/picture_list.h"
#include "data/unlabelled.h"
#include "files/file_kind.h"

namespace pando {
namespace {

constexpr uint32_t kSideDefault = 224;
// The most files whose heads are checked at the start, which takes at most a second.
constexpr size_t kHeadsCheckedMax = 20'000;
constexpr uint64_t kFingerprintFilesMax = 32;  // files of each split read whole, evenly spaced
// Add one with every change here or in resampler.cc that makes other pixels from a file.
constexpr uint32_t kPictureFormat = 1;

const Normalisation& ImageNetNormalisation() {
  static const Normalisation kNormalisation{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
  return kNormalisation;
}

// Returns the middle 7/8 of the shorter side, as in the usual evaluation on ImageNet.
PictureBox MiddleBox(uint32_t height, uint32_t width) {
  const uint32_t shorter = std::min(height, width);
  const uint32_t side = std::max<uint32_t>(1, (shorter * 7 + 4) / 8);
  return {(height - side) / 2, (width - side) / 2, side, side};
}

// Returns how much smaller the JPEG decoder may make a picture that stays larger than the target.
uint32_t ChooseShrink(const PictureBox& box, uint32_t side) {
  uint32_t shrink = 1;
  while (shrink < 8 && std::min(box.height, box.width) >= 2 * shrink * side) shrink *= 2;
  return shrink;
}

// Returns the same box in a picture that was decoded smaller.
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

// Reads pictures on one thread.
class PictureReader {
 public:
  // Decodes the file and resizes the part that `choose_box` chooses by height and width.
  template <class ChooseBox>
  Status Read(const std::string& path, const ChooseBox& choose_box, uint32_t out_height,
              uint32_t out_width, uint8_t* out) {
    PANDO_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, ReadFileBytes(path));
    PANDO_ASSIGN_OR_RETURN(PictureSize size, ReadPictureSize(bytes));
    const PictureBox box = choose_box(size.height, size.width);
    const uint32_t shrink = ChooseShrink(box, std::max(out_height, out_width));
    PANDO_RETURN_IF_ERROR(DecodePicture(bytes, shrink, &picture_));
    const PictureView view = picture_.view();
    resampler_.Resize(view, Shrunk(box, size, view), out_height, out_width, out);
    return Status();
  }

 private:
  DecodedPicture picture_;
  Resampler resampler_;
};

Status CheckHead(const std::string& path) {
  std::array<char, kFileHeadBytes> head{};
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    return Unavailable(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  stream.read(head.data(), head.size());
  if (stream.bad())
    return Unavailable(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  const auto got = static_cast<size_t>(stream.gcount());
  return CheckPictureHead({reinterpret_cast<const uint8_t*>(head.data()), got});
}

// PictureCache is a file of decoded and resized pictures of one size, so that they are decoded once
// and not in every epoch. It has the part that random augmentation does not change. Several
// processes may read and write one file. A slot has the hash of its pixels, so an empty or
// half-written slot is recognised.
//
//   file: at most kFileBytesMax; slots of picture_bytes pixels and 8 bytes of their hash, by
//   picture index; sparse
//
// Threads: any, at once.
class PictureCache {
 public:
  // Creates the folder and the file if they do not exist.
  static Result<PictureCache> Open(const std::string& folder, const std::string& file_name,
                                   size_t picture_bytes) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    const std::string path = folder + "/" + file_name;
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (fd.is_open()) return PictureCache(std::move(fd), picture_bytes);
    return NotFound(
        fmt::format("{}: cannot be opened for run.data_cache: {}; pictures are decoded again in "
                    "every epoch",
                    path, std::strerror(errno)));
  }
  PictureCache(PictureCache&& other) noexcept
      : fd_(std::move(other.fd_)), picture_bytes_(other.picture_bytes_) {}

  // Returns whether the picture was cached. REQUIRES: pixels.size() == picture_bytes.
  bool Read(uint64_t index, std::span<uint8_t> pixels) const {
    PANDO_CHECK(pixels.size() == picture_bytes_);
    if (!HasRoomFor(index)) return false;
    std::vector<uint8_t> slot(picture_bytes_ + kHashBytes);
    const ssize_t got =
        pread(fd_.get(), slot.data(), slot.size(), static_cast<off_t>(index * slot.size()));
    if (got != static_cast<ssize_t>(slot.size())) return false;
    uint64_t hash = 0;
    std::memcpy(&hash, &slot[picture_bytes_], kHashBytes);
    if (hash != Hash64(std::as_bytes(std::span(slot.data(), picture_bytes_)))) return false;
    std::memcpy(pixels.data(), slot.data(), picture_bytes_);
    return true;
  }
  // Keeps the picture if there is room. After a failure nothing more is written.
  void Write(uint64_t index, std::span<const uint8_t> pixels) {
    PANDO_CHECK(pixels.size() == picture_bytes_);
    if (is_full_ || !HasRoomFor(index)) return;
    std::vector<uint8_t> slot(picture_bytes_ + kHashBytes);
    std::memcpy(slot.data(), pixels.data(), picture_bytes_);
    const uint64_t hash = Hash64(std::as_bytes(pixels));
    std::memcpy(&slot[picture_bytes_], &hash, kHashBytes);
    const ssize_t put =
        pwrite(fd_.get(), slot.data(), slot.size(), static_cast<off_t>(index * slot.size()));
    if (put != static_cast<ssize_t>(slot.size())) is_full_ = true;
  }

 private:
  // Pictures beyond this are decoded in every epoch. ImageNet at 224 pixels fits.
  static constexpr uint64_t kFileBytesMax = uint64_t{256} << 30;
  static constexpr size_t kHashBytes = sizeof(uint64_t);

  PictureCache(UniqueFd fd, size_t picture_bytes)
      : fd_(std::move(fd)), picture_bytes_(picture_bytes) {}
  bool HasRoomFor(uint64_t index) const {
    return index < kFileBytesMax / (picture_bytes_ + kHashBytes);
  }

  UniqueFd fd_;
  size_t picture_bytes_;
  std::atomic<bool> is_full_ = false;
};

class ImageFolder final : public DataSet {
 public:
  ImageFolder(const Job& job, PictureList list)
      : list_(std::move(list)),
        root_(job.data_path),
        side_(job.resize == 0 ? kSideDefault : job.resize),
        augmenter_(job),
        mover_(augmenter_.WithoutCrops()) {}

  // Checks the files. Call it first.
  Status Open(const Job& job, const DataWarning& warn) {
    PANDO_RETURN_IF_ERROR(CheckHeads());
    PANDO_RETURN_IF_ERROR(MakeFingerprint());
    if (job.data_cache.empty()) return Status();
    const Status s = OpenCaches(job.data_cache);
    if (!s.ok() && warn) warn(s.message());
    return Status();
  }

  SampleShape shape() const override { return {side_, side_, 3}; }
  uint32_t class_count() const override { return static_cast<uint32_t>(list_.class_names.size()); }
  std::vector<std::string> class_names() const override { return list_.class_names; }
  std::vector<std::string> remarks() const override {
    std::vector<std::string> remarks;
    if (list_.ignored_files > 0) {
      remarks.push_back(
          fmt::format("{} files are ignored: they are no pictures", list_.ignored_files));
    }
    if (list_.skipped_files > 0) {
      remarks.push_back(
          fmt::format("{} pictures are left out by the skip list", list_.skipped_files));
    }
    return remarks;
  }
  std::vector<std::string> notices() const override { return UnreadNotices(list_); }
  uint64_t sample_count(Split split) const override { return files(split).size(); }
  const Normalisation* normalisation() const override { return &ImageNetNormalisation(); }
  const Augmenter* augmenter() const override { return &mover_; }
  uint64_t fingerprint() const override { return fingerprint_; }
  Result<int32_t> Label(Split split, uint64_t index) const override {
    return files(split)[index].label;
  }
  // kCorrupt: a picture cannot be decoded. The error names it and says how to leave it out.
  Status Fill(const Samples& part, size_t place, Batch* batch) const override {
    PictureReader reader;
    DrawMoves(part, place, batch);
    for (const uint64_t index : part.indices) {
      Wanted wanted{part.split, index, std::nullopt};
      if (part.epoch) wanted.drawn = {*part.epoch, index};
      PANDO_RETURN_IF_ERROR(ReadOne(reader, wanted, place++, batch));
    }
    return Status();
  }

 private:
  struct Wanted {  // describes a picture
    Split split = Split::kTrain;
    uint64_t index = 0;
    std::optional<Augmenter::Name> drawn;  // the name under which its augmentation is drawn
  };

  const std::vector<PictureFile>& files(Split split) const {
    return split == Split::kTrain ? list_.train : list_.test;
  }

  // Checks the heads, so that a text file named .jpg shows now, not after a day of training.
  Status CheckHeads() const {
    if (list_.train.size() + list_.test.size() > kHeadsCheckedMax) return Status();
    for (Split split : {Split::kTrain, Split::kTest}) {
      for (const PictureFile& file : files(split)) {
        const Status s = CheckHead(PicturePath(list_, split, file));
        if (s.code() == StatusCode::kCorrupt) return BadPictureError(split, file, s);
        if (!s.ok()) return NotFound(s.message() + "; mend the file or its permissions");
      }
    }
    return Status();
  }

  Status BadPictureError(Split split, const PictureFile& file, const Status& why) const {
    return Corrupt(fmt::format(
        "{}: {}: {}; mend or remove the file, or leave it out: `pando data check {}` finds all "
        "such pictures and writes a skip list, which data.skip names",
        root_, PictureName(list_, split, file), why.message(), root_));
  }

  // Hashes every name and size, and the bytes of some files (P38). Folders are hashed by the names
  // that PictureName uses.
  Status MakeFingerprint() {
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
    fingerprint_ = hash;
    return Status();
  }

  // A cache is valid for these files as they were written (with their times), for these decoders
  // and for this way of resizing.
  uint64_t CacheKey() const {
    uint64_t hash =
        Hash64(fmt::format("format {}, {}", kPictureFormat, PANDO_PICTURE_DECODERS), fingerprint_);
    for (Split split : {Split::kTrain, Split::kTest}) {
      for (const PictureFile& file : files(split)) {
        std::error_code ignored;
        const auto time =
            std::filesystem::last_write_time(PicturePath(list_, split, file), ignored);
        const int64_t ticks = time.time_since_epoch().count();
        hash = Hash64(std::as_bytes(std::span(&ticks, 1)), hash);
      }
    }
    return hash;
  }

  Status OpenCaches(const std::string& folder) {
    const uint64_t key = CacheKey();
    for (Split split : {Split::kTrain, Split::kTest}) {
      const std::string name =
          fmt::format("{:016x}-{}.pictures", key, split == Split::kTrain ? "train" : "test");
      PANDO_ASSIGN_OR_RETURN(PictureCache cache, PictureCache::Open(folder, name, shape().size()));
      caches_[static_cast<size_t>(split)].emplace(std::move(cache));
    }
    return Status();
  }

  Status ReadOne(PictureReader& reader, const Wanted& wanted, size_t position, Batch* batch) const {
    PANDO_CHECK(wanted.index < files(wanted.split).size());
    const PictureFile& file = files(wanted.split)[wanted.index];
    batch->labels[position] = file.label;
    const auto out = std::span(batch->bytes).subspan(position * shape().size(), shape().size());
    const Status read = ReadPicture(reader, wanted, out);
    if (read.ok()) return read;
    if (read.code() == StatusCode::kCorrupt) return BadPictureError(wanted.split, file, read);
    // The disk has a fault, but another machine may be able to read the file.
    return Status(read.code(), PicturePath(list_, wanted.split, file) + ": " + read.message());
  }

  // Reads from the cache, if the picture is the same in every epoch.
  Status ReadPicture(PictureReader& reader, const Wanted& wanted, std::span<uint8_t> out) const {
    const std::string path = PicturePath(list_, wanted.split, files(wanted.split)[wanted.index]);
    const auto crop = augmenter_.crops() ? wanted.drawn : std::nullopt;
    std::optional<PictureCache>& cache = caches_[static_cast<size_t>(wanted.split)];
    if (crop || !cache) return Decode(path, crop, reader, out);
    if (cache->Read(wanted.index, out)) return Status();
    Status s = Decode(path, crop, reader, out);
    if (s.ok()) cache->Write(wanted.index, out);
    return s;
  }

  Status Decode(const std::string& path, std::optional<Augmenter::Name> crop, PictureReader& reader,
                std::span<uint8_t> out) const {
    const auto choose_box = [&](uint32_t height, uint32_t width) {
      return crop ? augmenter_.DrawBox(*crop, height, width) : MiddleBox(height, width);
    };
    return reader.Read(path, choose_box, side_, side_, out.data());
  }

  const PictureList list_;
  const std::string root_;
  const uint32_t side_;
  const Augmenter augmenter_;                      // draws crops while a picture is decoded
  const Augmenter mover_;                          // draws flips afterwards
  mutable std::optional<PictureCache> caches_[2];  // by split
  uint64_t fingerprint_ = 0;
};

}  // namespace

OpenedDataSet OpenImageFolder(const Job& job, const DataWarning& warn) {
  PANDO_ASSIGN_OR_RETURN(PictureList list, ListPictures(job.data_path));
  if (!job.skip_list.empty()) {
    const std::string path = SkipListPath(job.skip_list, job.data_path);
    PANDO_RETURN_IF_ERROR(LeaveOut(path, &list));
  }
  PANDO_RETURN_IF_ERROR(CheckUnread(job.data_path, list));
  auto data = std::make_unique<ImageFolder>(job, std::move(list));
  PANDO_RETURN_IF_ERROR(data->Open(job, warn));
  return OpenedDataSet(std::move(data));
}

// ---- pictures without labels --------------------------------------------------------------------

namespace {

// Returns PIL's grey for a colour; for equal channels their value.
uint8_t Grey(const uint8_t* rgb) {
  return static_cast<uint8_t>((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 0x8000) >> 16);
}

// Lists files and the pictures in folders; files that are not read become notices.
Result<UnlabelledSamples> ListUnlabelled(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  UnlabelledSamples found;
  PictureList list;
  for (const fs::path path : paths) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      found.names.push_back(path);
      continue;
    }
    PANDO_ASSIGN_OR_RETURN(const ClassFolder folder, ReadClassFolder(path));
    for (const FolderPicture& file : folder.pictures) found.names.push_back(path / file.name);
    for (const UnreadFile& file : folder.unread)
      list.unread.push_back({path / file.name, file.reason});
  }
  found.notices = UnreadNotices(list);
  if (!found.names.empty()) return found;
  return NotFound(fmt::format("{}: holds no picture (.jpg, .jpeg, .png)", Joined(paths)));
}

Status CheckUnlabelled(const std::vector<std::string>& paths) {
  for (size_t i = 0; i < std::min(paths.size(), kHeadsCheckedMax); ++i) {
    const Status s = CheckHead(paths[i]);
    if (s.code() == StatusCode::kCorrupt) return Corrupt(paths[i] + ": " + s.message());
    if (!s.ok()) return NotFound(s.message());
  }
  return Status();
}

struct UnlabelledInputs {
  SampleShape shape;
  Normalisation normalisation;
  bool are_photographs = false;
  Ink ink = Ink::kAsItIs;

  Status Read(std::span<const std::string> paths, Batch* batch) const {
    const size_t pixel_count = size_t{shape.height} * shape.width;
    const auto choose_box = [&](uint32_t height, uint32_t width) {
      return are_photographs ? MiddleBox(height, width) : PictureBox{0, 0, height, width};
    };
    *batch = {.shape = shape, .normalisation = &normalisation};
    batch->labels.resize(paths.size());
    PictureReader reader;
    std::vector<uint8_t> rgb(pixel_count * 3);
    for (const std::string& path : paths) {
      const Status s = reader.Read(path, choose_box, shape.height, shape.width, rgb.data());
      if (!s.ok()) return Status(s.code(), path + ": " + s.message());
      if (shape.channels == 3) batch->bytes.insert(batch->bytes.end(), rgb.begin(), rgb.end());
      for (size_t p = 0; p < pixel_count && shape.channels == 1; ++p)
        batch->bytes.push_back(Grey(&rgb[p * 3]));
    }
    if (ink == Ink::kInverted) {
      for (uint8_t& byte : batch->bytes) byte = static_cast<uint8_t>(255 - byte);
    }
    return Status();
  }

  // Says what was assumed about the pictures, and names the first ones that look different.
  std::vector<std::string> Notices(std::span<const std::string> paths) const {
    constexpr size_t kReadMax = 64;
    constexpr float kMiddle = 0.5f;
    if (are_photographs || shape.channels != 1 || normalisation.mean.empty()) return {};
    const bool is_dark = normalisation.mean[0] < kMiddle;
    std::vector<std::string> lines{fmt::format(
        "pictures become {} x {} grey pixels, {}: training pictures are {} ({:.2f} of white on "
        "average)",
        shape.height, shape.width,
        ink == Ink::kInverted ? "inverted (--invert)" : "not inverted (--invert inverts them)",
        is_dark ? "light on a dark ground" : "dark on a light ground", normalisation.mean[0])};
    Batch batch;
    paths = paths.first(std::min(paths.size(), kReadMax));
    if (!Read(paths, &batch).ok()) return lines;  // predicting reports the reason
    for (size_t i = 0; i < paths.size(); ++i) {
      const auto bytes = std::span(batch.bytes).subspan(i * shape.size(), shape.size());
      const auto sum = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
      if ((sum * 2 < bytes.size() * 255) == is_dark) continue;
      lines.push_back(fmt::format(
          "{} is mostly {}, unlike the training pictures; its label may be wrong: {} --invert",
          paths[i], is_dark ? "light" : "dark", ink == Ink::kInverted ? "leave out" : "try"));
      break;
    }
    return lines;
  }
};

}  // namespace

Result<UnlabelledSamples> OpenPictures(const std::vector<std::string>& paths, const JobPlan& plan,
                                       Ink ink) {
  if (const uint32_t channels = plan.data.shape.channels; channels != 1 && channels != 3)
    return Corrupt(fmt::format(
        "the weights are of inputs with {} channels, and pictures have 1 or 3", channels));
  PANDO_ASSIGN_OR_RETURN(UnlabelledSamples samples, ListUnlabelled(paths));
  PANDO_RETURN_IF_ERROR(CheckUnlabelled(samples.names));
  const Preprocessing& from = plan.data.preprocessing;
  const auto inputs = std::make_shared<const UnlabelledInputs>(
      UnlabelledInputs{.shape = plan.data.shape,
                       .normalisation = {{from.mean.begin(), from.mean.end()},
                                         {from.deviation.begin(), from.deviation.end()}},
                       .are_photographs = plan.job.dataset == "imagefolder",
                       .ink = ink});
  for (std::string& line : inputs->Notices(samples.names))
    samples.notices.push_back(std::move(line));
  samples.read = [inputs, paths = samples.names](size_t first, size_t last, Batch* batch) {
    return inputs->Read(std::span(paths).subspan(first, last - first), batch);
  };
  return samples;
}

}  // namespace pando
