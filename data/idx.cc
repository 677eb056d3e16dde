// Reads idx files, the format of MNIST and Fashion-MNIST, plain or gzip-compressed.
//
//   byte 0  magic, big-endian: 0x00000803 pictures (3 sizes), 0x00000801 labels (1 size)
//   byte 4  record count, big-endian; for pictures then height and width
//   then    the records, one unsigned byte per pixel or label, row by row
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "common/check.h"
#include "common/text.h"
#include "data/byte_stream.h"
#include "data/kinds.h"
#include "data/picture_set.h"
#include "files/file_kind.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kClassCount = 10;  // MNIST and Fashion-MNIST
constexpr uint32_t kPicturesMagic = 0x00000803;
constexpr uint32_t kLabelsMagic = 0x00000801;
constexpr uint32_t kPictureSideMax = 65535;  // so that count * height * width fits 64 bits
constexpr size_t kChunkBytes = size_t{8} << 20;
constexpr uint64_t kReserveBytesMax = uint64_t{64} << 20;  // MNIST's 47 MB without reallocation

// Name and content must agree about compression. A mismatch means a broken download or an
// incomplete unpacking, and zlib would silently pass the bytes through.
Status CheckCompression(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  std::array<char, kFileHeadBytes> head{};
  file.read(head.data(), head.size());
  const unsigned first = static_cast<unsigned char>(head[0]);
  const unsigned second = static_cast<unsigned char>(head[1]);
  const auto head_bytes = static_cast<size_t>(file.gcount());
  const bool is_gzip = head_bytes >= 2 && first == 0x1f && second == 0x8b;
  const std::string other = NameOtherKind({head.data(), head_bytes}, FileUse::kIdx);
  if (!is_gzip && !other.empty()) return Corrupt(fmt::format("{}: {}", path, other));
  const bool is_named_gz = path.ends_with(".gz");
  if (is_named_gz && head_bytes < 2) {
    return Corrupt(
        fmt::format("{}: has {} bytes, expected a gzip file; download it again", path, head_bytes));
  }
  if (is_named_gz && !is_gzip) {
    return Corrupt(fmt::format(
        "{}: not a gzip file: begins with {:02x} {:02x} at byte 0, expected 1f 8b; if it is "
        "unpacked already, remove .gz from its name, else download it again",
        path, first, second));
  }
  if (!is_named_gz && is_gzip) {
    return Corrupt(
        fmt::format("{}: is gzip-compressed (1f 8b at byte 0) but its name does not end "
                    "with .gz; add .gz to it or unpack the file",
                    path));
  }
  return Status();
}

// IdxFile reads the bytes of one file in order. Every error names the file and the byte.
class IdxFile {
 public:
  static Result<IdxFile> Open(const std::string& path) {
    PANDO_RETURN_IF_ERROR(CheckCompression(path));
    ByteStream stream(path, path.ends_with(".gz"));
    if (!stream.is_open())
      return NotFound(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
    return IdxFile(path, std::move(stream));
  }

  Result<uint32_t> ReadNumber() {
    std::array<uint8_t, 4> b{};
    PANDO_RETURN_IF_ERROR(ReadExactly(b.data(), b.size(), offset_ + b.size()));
    return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
  }

  Status ExpectMagic(uint32_t expected, const char* what) {
    Result<uint32_t> magic = ReadNumber();
    if (!magic.ok()) return magic.status();
    if (*magic == expected) return Status();
    const char* hint = *magic == kPicturesMagic ? " (it holds pictures)"
                       : *magic == kLabelsMagic ? " (it holds labels)"
                                                : "";
    return Corrupt(fmt::format(
        "{}: wrong magic at byte 0: found {:08x}{}, expected {:08x} (idx file of {}); download it "
        "again, and check that files were not renamed",
        path_, *magic, hint, expected, what));
  }

  // Reads `size` bytes and expects the file to end there. Memory grows with the bytes read, not
  // with the size that the header claims.
  Result<std::vector<uint8_t>> ReadRest(uint64_t size) {
    const uint64_t end = offset_ + size;
    std::vector<uint8_t> bytes;
    bytes.reserve(std::min<uint64_t>(size, kReserveBytesMax));
    while (bytes.size() < size) {
      const size_t old_size = bytes.size();
      bytes.resize(old_size + std::min<uint64_t>(size - old_size, kChunkBytes));
      PANDO_RETURN_IF_ERROR(ReadExactly(bytes.data() + old_size, bytes.size() - old_size, end));
    }
    PANDO_RETURN_IF_ERROR(ExpectEnd());
    return bytes;
  }

  Status Wrong(const std::string& found_and_expected, uint64_t offset) const {
    return Corrupt(fmt::format("{}: byte {}{}: {}; download it again", path_, offset, Unpacked(),
                               found_and_expected));
  }
  uint64_t offset() const { return offset_; }

 private:
  IdxFile(std::string path, ByteStream stream)
      : path_(std::move(path)), stream_(std::move(stream)) {}

  // `end` is where the file should end; it is only for the message.
  Status ReadExactly(uint8_t* out, size_t size, uint64_t end) {
    const size_t got = stream_.Read(out, size);
    offset_ += got;
    if (got == size) return Status();
    if (!stream_.damage().empty()) return Wrong(stream_.damage(), offset_);
    return Wrong(fmt::format("the file is truncated here, expected at least {} bytes", end),
                 offset_);
  }

  // Reading past the last record also makes zlib check the sum at the end of a gzip file.
  Status ExpectEnd() {
    uint8_t extra = 0;
    if (stream_.Read(&extra, 1) == 1)
      return Wrong("more bytes follow where the header says that the file ends", offset_);
    if (!stream_.damage().empty()) return Wrong(stream_.damage(), offset_);
    if (!stream_.IsCutOff()) return Status();
    return Wrong("the gzip file is truncated in its last bytes, the check sum", offset_);
  }

  const char* Unpacked() const { return path_.ends_with(".gz") ? " of the unpacked data" : ""; }

  std::string path_;
  ByteStream stream_;
  uint64_t offset_ = 0;  // in the unpacked bytes
};

Result<uint32_t> ReadCount(IdxFile& file, const char* what) {
  Result<uint32_t> count = file.ReadNumber();
  if (count.ok() && *count == 0) {
    return file.Wrong(fmt::format("the file says that it holds 0 {}, expected at least 1", what),
                      file.offset() - 4);
  }
  return count;
}

Result<uint32_t> ReadSide(IdxFile& file, const char* what) {
  Result<uint32_t> side = file.ReadNumber();
  if (side.ok() && (*side == 0 || *side > kPictureSideMax)) {
    return file.Wrong(fmt::format("{} is {}, expected 1 to {}", what, *side, kPictureSideMax),
                      file.offset() - 4);
  }
  return side;
}

// A kind of data set in idx files.
struct Kind {
  const char* title;
  float mean;  // for byte / 255 over the training pictures, rounded as usual
  float stddev;
  std::vector<std::string> class_names;  // empty: numbers
};

struct Part {  // one file of a split
  const char* name;
  const char* suffix;
};
constexpr Part kImages{"images", "idx3-ubyte"}, kLabels{"labels", "idx1-ubyte"};

// "train-images-idx3-ubyte" is the published name; unpacked copies are often called
// "train-images.idx3-ubyte".
std::vector<std::string> FileNames(const char* split, const Part& part) {
  const std::string dashed = fmt::format("{}-{}-{}", split, part.name, part.suffix);
  const std::string dotted = fmt::format("{}-{}.{}", split, part.name, part.suffix);
  return {dashed + ".gz", dashed, dotted, dotted + ".gz"};
}

std::optional<std::string> FindFile(const std::string& folder, const char* split,
                                    const Part& part) {
  std::error_code ignored;
  for (const std::string& name : FileNames(split, part)) {
    const fs::path path = fs::path(folder) / name;
    if (fs::is_regular_file(path, ignored)) return path.string();
  }
  return std::nullopt;
}

Result<std::string> RequireFile(const std::string& folder, const char* split, const Part& part,
                                const Kind& kind) {
  if (std::optional<std::string> path = FindFile(folder, split, part)) return *path;
  return NotFound(
      fmt::format("{}: holds none of {}; {} is four idx files in one folder: download the missing "
                  "one there, or point data.path at the folder that has them",
                  folder, Joined(FileNames(split, part)), kind.title));
}

Status CheckFolder(const std::string& folder, const Kind& kind) {
  if (folder.empty()) {
    return InvalidArgument(fmt::format(
        "no folder given for {}, and none is in data/ or ../shared/data/: set data.path (--data) "
        "to the folder of its four idx files, download it with pando data fetch, or use "
        "--dataset synthetic-digits, which needs none",
        kind.title));
  }
  std::error_code error;
  if (fs::is_directory(folder, error)) return Status();
  const char* found = fs::exists(folder, error) ? "is not a folder" : "no such folder";
  return NotFound(fmt::format(
      "{}: {}; data.path (--data) must be the folder of the four idx files of {}, or use --dataset "
      "synthetic-digits, which needs none",
      folder, found, kind.title));
}

struct IdxSplit {
  SampleShape shape;
  Pictures pictures;
  std::string pictures_path;
};

Result<IdxSplit> ReadSplit(const std::string& folder, const char* split, const Kind& kind) {
  PANDO_ASSIGN_OR_RETURN(std::string images_path, RequireFile(folder, split, kImages, kind));
  PANDO_ASSIGN_OR_RETURN(std::string labels_path, RequireFile(folder, split, kLabels, kind));
  PANDO_ASSIGN_OR_RETURN(IdxPictures images, ReadIdxPictures(images_path));
  auto labels = ReadIdxLabels(labels_path, kClassCount);
  if (!labels.ok()) return labels.status();
  if (images.count != labels->size()) {
    return Corrupt(fmt::format(
        "{} holds {} pictures but {} holds {} labels, expected as many of each (counts at byte 4); "
        "the two are not from one data set: download both again",
        images_path, images.count, labels_path, labels->size()));
  }
  return IdxSplit{{images.height, images.width, 1},
                  {std::move(images.pixels), std::move(*labels)},
                  images_path};
}

OpenedDataSet Open(const Job& job, const Kind& kind) {
  const std::string& folder = job.data_path;
  PANDO_RETURN_IF_ERROR(CheckFolder(folder, kind));
  Result<IdxSplit> train = ReadSplit(folder, "train", kind);
  if (!train.ok()) return train.status();
  Result<IdxSplit> test = ReadSplit(folder, "t10k", kind);
  if (!test.ok()) return test.status();
  if (train->shape != test->shape) {
    return Corrupt(
        fmt::format("{} has pictures of {} x {} but {} of {} x {} (sizes at byte 8), expected the "
                    "same size; the two are not from one data set: download both again",
                    train->pictures_path, train->shape.height, train->shape.width,
                    test->pictures_path, test->shape.height, test->shape.width));
  }
  return OpenedDataSet(
      std::make_unique<PictureSet>(PictureSet::Parts{.shape = train->shape,
                                                     .class_count = kClassCount,
                                                     .class_names = kind.class_names,
                                                     .normalisation = {{kind.mean}, {kind.stddev}},
                                                     .train = std::move(train->pictures),
                                                     .test = std::move(test->pictures)},
                                   job));
}

}  // namespace

OpenedDataSet OpenMnist(const Job& job, const DataWarning&) {
  return Open(job, {"MNIST", 0.1307f, 0.3081f, {}});
}

OpenedDataSet OpenFashionMnist(const Job& job, const DataWarning&) {
  return Open(job, {"Fashion-MNIST",
                    0.2860f,
                    0.3530f,
                    {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt",
                     "Sneaker", "Bag", "Ankle boot"}});
}

bool HoldsIdxFiles(const std::string& folder) {
  for (const char* split : {"train", "t10k"}) {
    for (const Part& part : {kImages, kLabels}) {
      if (!FindFile(folder, split, part)) return false;
    }
  }
  return true;
}

Result<IdxPictures> ReadIdxPictures(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(IdxFile file, IdxFile::Open(path));
  PANDO_RETURN_IF_ERROR(file.ExpectMagic(kPicturesMagic, "pictures"));
  PANDO_ASSIGN_OR_RETURN(uint32_t count, ReadCount(file, "pictures"));
  PANDO_ASSIGN_OR_RETURN(uint32_t height, ReadSide(file, "the height"));
  PANDO_ASSIGN_OR_RETURN(uint32_t width, ReadSide(file, "the width"));
  PANDO_ASSIGN_OR_RETURN(std::vector<uint8_t> pixels,
                         file.ReadRest(uint64_t{count} * height * width));
  return IdxPictures{count, height, width, std::move(pixels)};
}

Result<std::vector<uint8_t>> ReadIdxLabels(const std::string& path, uint32_t class_count) {
  PANDO_ASSIGN_OR_RETURN(IdxFile file, IdxFile::Open(path));
  PANDO_RETURN_IF_ERROR(file.ExpectMagic(kLabelsMagic, "labels"));
  PANDO_ASSIGN_OR_RETURN(uint32_t count, ReadCount(file, "labels"));
  const uint64_t first_label = file.offset();
  Result<std::vector<uint8_t>> labels = file.ReadRest(count);
  if (!labels.ok()) return labels.status();
  auto wrong = std::find_if(labels->begin(), labels->end(),
                            [&](uint8_t label) { return label >= class_count; });
  if (wrong != labels->end()) {
    const auto index = static_cast<uint64_t>(wrong - labels->begin());
    return Corrupt(fmt::format(
        "{}: byte {}{}: label {} is {}, expected 0 to {}, the classes of MNIST and Fashion-MNIST; "
        "EMNIST's letters have more: make an image folder of them (--dataset imagefolder), else "
        "download the file again",
        path, first_label + index, path.ends_with(".gz") ? " of the unpacked data" : "", index,
        *wrong, class_count - 1));
  }
  return labels;
}

}  // namespace pando
