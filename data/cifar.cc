// Reads the binary CIFAR-10 and CIFAR-100 files.
//
//   CIFAR-10   data_batch_1.bin to data_batch_5.bin, test_batch.bin
//              record: label, then 3 x 32 x 32 pixels: the red plane, the green, the blue, row by
//              row
//   CIFAR-100  train.bin, test.bin
//              record: coarse label, fine label (the class), then pixels as above
//
// Source: Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "data/kinds.h"
#include "data/picture_set.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kSide = 32, kChannels = 3;
constexpr size_t kPlaneBytes = kSide * kSide;
constexpr size_t kPictureBytes = kPlaneBytes * kChannels;
constexpr uint64_t kTrainPerTest = 5;  // pictures: 50,000 and 10,000, in both data sets

struct Format {
  const char* title;
  std::vector<std::string> train_files;
  std::string test_file;
  std::string names_file;  // one class name per line
  std::string own_folder;  // the published archive unpacks to it
  size_t label_bytes;      // per record; the last of them is the class
  uint32_t class_count;
  Normalisation normalisation;  // for byte / 255 over the training pictures
};

const Format& Cifar10() {
  static const Format kFormat{
      .title = "CIFAR-10",
      .train_files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                      "data_batch_4.bin", "data_batch_5.bin"},
      .test_file = "test_batch.bin",
      .names_file = "batches.meta.txt",
      .own_folder = kCifar10Folder,
      .label_bytes = 1,
      .class_count = 10,
      .normalisation = {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}}};
  return kFormat;
}

const Format& Cifar100() {
  static const Format kFormat{
      .title = "CIFAR-100",
      .train_files = {"train.bin"},
      .test_file = "test.bin",
      .names_file = "fine_label_names.txt",
      .own_folder = kCifar100Folder,
      .label_bytes = 2,
      .class_count = 100,
      .normalisation = {{0.5071f, 0.4865f, 0.4409f}, {0.2673f, 0.2564f, 0.2762f}}};
  return kFormat;
}

// Returns the first file that `folder` lacks.
std::optional<std::string> FindMissing(const std::string& folder, const Format& format) {
  std::error_code ignored;
  const auto is_missing = [&](const std::string& name) {
    return !fs::is_regular_file(fs::path(folder) / name, ignored);
  };
  const auto missing = std::ranges::find_if(format.train_files, is_missing);
  if (missing != format.train_files.end()) return *missing;
  if (is_missing(format.test_file)) return format.test_file;
  return std::nullopt;
}

// Returns the folder of the files: the given one, or the archive's folder in it. Errors name the
// missing file.
Result<std::string> FindFiles(const std::string& given, const Format& format) {
  std::error_code ignored;
  if (given.empty()) {
    return InvalidArgument(
        fmt::format("no folder given for {}: set data.path (--data) to the folder of its .bin "
                    "files; `pando data fetch` downloads them",
                    format.title));
  }
  if (!fs::is_directory(given, ignored)) {
    return NotFound(fmt::format(
        "{}: no such folder; data.path (--data) must be the folder of the .bin files of {}", given,
        format.title));
  }
  const std::string own = (fs::path(given) / format.own_folder).string();
  const std::string folder = fs::is_directory(own, ignored) ? own : given;
  const std::optional<std::string> missing = FindMissing(folder, format);
  if (!missing) return folder;
  return NotFound(
      fmt::format("{}: holds no {}; {} (binary version) is {} files in one folder: download the "
                  "archive again, or point data.path at the folder that has them",
                  folder, *missing, format.title, format.train_files.size() + 1));
}

Status AppendRecord(const std::string& path, uint64_t record, const uint8_t* bytes,
                    const Format& format, Pictures* pictures) {
  const uint8_t label = bytes[format.label_bytes - 1];
  if (label >= format.class_count) {
    const uint64_t record_bytes = format.label_bytes + kPictureBytes;
    return Corrupt(fmt::format(
        "{}: label {} of record {} (byte {}), expected 0 to {}; this is no {} file (binary "
        "version): download it again",
        path, label, record, record * record_bytes + format.label_bytes - 1, format.class_count - 1,
        format.title));
  }
  pictures->labels.push_back(label);
  const uint8_t* planes = bytes + format.label_bytes;
  const size_t start = pictures->pixels.size();
  pictures->pixels.resize(start + kPictureBytes);
  uint8_t* out = &pictures->pixels[start];
  for (size_t p = 0; p < kPlaneBytes; ++p) {
    for (uint32_t c = 0; c < kChannels; ++c) *out++ = planes[c * kPlaneBytes + p];
  }
  return Status();
}

Status AppendFile(const std::string& path, const Format& format, Pictures* pictures) {
  const size_t record_bytes = format.label_bytes + kPictureBytes;
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  std::vector<uint8_t> record(record_bytes);
  for (uint64_t r = 0;; ++r) {
    file.read(reinterpret_cast<char*>(record.data()), static_cast<std::streamsize>(record_bytes));
    const auto got = static_cast<size_t>(file.gcount());
    if (file.bad())
      return Unavailable(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
    if (got == 0 && r > 0) return Status();
    if (got < record_bytes) {
      return Corrupt(fmt::format(
          "{}: cut off: ends at byte {}, within record {}, expected whole records of {} bytes; "
          "download it again",
          path, r * record_bytes + got, r, record_bytes));
    }
    PANDO_RETURN_IF_ERROR(AppendRecord(path, r, record.data(), format, pictures));
  }
}

// Returns the archive's class names; none if the file is missing or of another data set.
std::vector<std::string> ReadNames(const std::string& path, const Format& format) {
  std::ifstream file(path);
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  return names.size() == format.class_count ? names : std::vector<std::string>{};
}

// A file that was cut between two records looks valid, so records are counted.
Status CheckCounts(const std::string& folder, const Format& format,
                   const std::vector<uint64_t>& train_counts, uint64_t test_count) {
  const uint64_t expected = kTrainPerTest * test_count / train_counts.size();
  for (size_t i = 0; i < train_counts.size(); ++i) {
    if (train_counts[i] == expected) continue;
    return Corrupt(fmt::format(
        "{}/{} has {} records, expected {}, since {} has {}; one of them is cut off: download "
        "both again",
        folder, format.train_files[i], train_counts[i], expected, format.test_file, test_count));
  }
  return Status();
}

OpenedDataSet Open(const Job& job, const Format& format) {
  PANDO_ASSIGN_OR_RETURN(std::string folder, FindFiles(job.data_path, format));
  PictureSet::Parts parts{.shape = {kSide, kSide, kChannels},
                          .class_count = format.class_count,
                          .class_names = ReadNames(folder + "/" + format.names_file, format),
                          .normalisation = format.normalisation,
                          .train = {},
                          .test = {}};
  std::vector<uint64_t> counts;
  for (const std::string& name : format.train_files) {
    const uint64_t before = parts.train.labels.size();
    PANDO_RETURN_IF_ERROR(AppendFile(folder + "/" + name, format, &parts.train));
    counts.push_back(parts.train.labels.size() - before);
  }
  const std::string test_path = folder + "/" + format.test_file;
  PANDO_RETURN_IF_ERROR(AppendFile(test_path, format, &parts.test));
  Status even = CheckCounts(folder, format, counts, parts.test.labels.size());
  if (!even.ok()) return even;
  return OpenedDataSet(std::make_unique<PictureSet>(std::move(parts), job));
}

}  // namespace

OpenedDataSet OpenCifar10(const Job& job, const DataWarning&) { return Open(job, Cifar10()); }
OpenedDataSet OpenCifar100(const Job& job, const DataWarning&) { return Open(job, Cifar100()); }
bool HoldsCifar10(const std::string& folder) { return !FindMissing(folder, Cifar10()); }
bool HoldsCifar100(const std::string& folder) { return !FindMissing(folder, Cifar100()); }

}  // namespace pando
