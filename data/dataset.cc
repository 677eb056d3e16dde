#include "data/dataset.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "common/nearest_name.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/image_folder.h"
#include "data/picture_set.h"
#include "data/subset.h"
#include "data/synthetic_digits.h"
#include "data/synthetic_imagenet.h"
#include "data/table_set.h"

namespace pando {
namespace {

namespace fs = std::filesystem;
using OpenedDataSet = Result<std::unique_ptr<DataSet>>;

constexpr uint32_t kIdxClassCount = 10;               // MNIST and Fashion-MNIST
constexpr uint64_t kSyntheticSamplesMax = 4'000'000;  // of a split: 3.1 GB of pictures

struct IdxKind {
  const char* title;
  float mean;  // of byte / 255 over the training pictures, rounded as usual
  float stddev;
  std::vector<std::string> class_names;  // none: numbers
};

IdxKind Mnist() { return {"MNIST", 0.1307f, 0.3081f, {}}; }

IdxKind FashionMnist() {
  return {"Fashion-MNIST",
          0.2860f,
          0.3530f,
          {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
           "Bag", "Ankle boot"}};
}

std::string JoinNames(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

// "train-images-idx3-ubyte" is the published name; unpacked copies are often called
// "train-images.idx3-ubyte".
std::vector<std::string> IdxNames(const char* stem, const char* suffix) {
  const std::string dashed = fmt::format("{}-{}", stem, suffix);
  const std::string dotted = fmt::format("{}.{}", stem, suffix);
  return {dashed + ".gz", dashed, dotted, dotted + ".gz"};
}

std::optional<std::string> FindFile(const std::string& folder,
                                    const std::vector<std::string>& names) {
  std::error_code ignored;
  for (const std::string& name : names) {
    const fs::path path = fs::path(folder) / name;
    if (fs::is_regular_file(path, ignored)) return path.string();
  }
  return std::nullopt;
}

Result<std::string> RequireFile(const std::string& folder, const std::vector<std::string>& names,
                                const IdxKind& kind) {
  if (std::optional<std::string> path = FindFile(folder, names)) return *path;
  return NotFound(
      fmt::format("{}: holds none of {}; {} is four idx files in one folder: download the missing "
                  "one there, or "
                  "point data.path at the folder that has them",
                  folder, JoinNames(names), kind.title));
}

Status CheckFolder(const std::string& folder, const IdxKind& kind) {
  if (folder.empty()) {
    return InvalidArgument(
        fmt::format("no folder given for {}: set data.path (--data) to the folder of its four idx "
                    "files, or use "
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

Result<IdxSplit> ReadIdxSplit(const std::string& folder, const char* split, const IdxKind& kind) {
  const std::string images_stem = fmt::format("{}-images", split);
  const std::string labels_stem = fmt::format("{}-labels", split);
  auto images_path = RequireFile(folder, IdxNames(images_stem.c_str(), "idx3-ubyte"), kind);
  if (!images_path.ok()) return images_path.status();
  auto labels_path = RequireFile(folder, IdxNames(labels_stem.c_str(), "idx1-ubyte"), kind);
  if (!labels_path.ok()) return labels_path.status();
  Result<IdxPictures> images = ReadIdxPictures(*images_path);
  if (!images.ok()) return images.status();
  auto labels = ReadIdxLabels(*labels_path, kIdxClassCount);
  if (!labels.ok()) return labels.status();
  if (images->count != labels->size()) {
    return Corrupt(fmt::format(
        "{} holds {} pictures but {} holds {} labels, expected as many of each (counts at byte 4); "
        "the two are not from one data set: download both again",
        *images_path, images->count, *labels_path, labels->size()));
  }
  return IdxSplit{{images->height, images->width, 1},
                  {std::move(images->pixels), std::move(*labels)},
                  *images_path};
}

OpenedDataSet OpenIdx(const Job& job, const IdxKind& kind) {
  const std::string& folder = job.data_path;
  if (Status s = CheckFolder(folder, kind); !s.ok()) return s;
  Result<IdxSplit> train = ReadIdxSplit(folder, "train", kind);
  if (!train.ok()) return train.status();
  Result<IdxSplit> test = ReadIdxSplit(folder, "t10k", kind);
  if (!test.ok()) return test.status();
  if (train->shape != test->shape) {
    return Corrupt(
        fmt::format("{} has pictures of {} x {} but {} of {} x {} (sizes at byte 8), expected the "
                    "same size; the "
                    "two are not from one data set: download both again",
                    train->pictures_path, train->shape.height, train->shape.width,
                    test->pictures_path, test->shape.height, test->shape.width));
  }
  return OpenedDataSet(
      std::make_unique<PictureSet>(PictureSet::Parts{.shape = train->shape,
                                                     .class_count = kIdxClassCount,
                                                     .class_names = kind.class_names,
                                                     .normalisation = {{kind.mean}, {kind.stddev}},
                                                     .train = std::move(train->pictures),
                                                     .test = std::move(test->pictures)},
                                   MakeTransform(job)));
}

Pictures DrawDigits(const DigitPainter& painter, Split split, uint64_t count) {
  constexpr size_t kPictureBytes = DigitPainter::kSide * DigitPainter::kSide;
  Pictures pictures{.pixels = std::vector<uint8_t>(count * kPictureBytes), .labels = {}};
  for (uint64_t i = 0; i < count; ++i) {
    painter.Draw(split, i, std::span(pictures.pixels).subspan(i * kPictureBytes, kPictureBytes));
    pictures.labels.push_back(DigitPainter::Label(i));
  }
  return pictures;
}

// Drawn once and kept: pictures as many as MNIST's take 55 MB.
OpenedDataSet OpenSyntheticDigits(const Job& job) {
  const std::pair<const char*, uint64_t> counts[] = {
      {"data.synthetic_train_samples", job.synthetic_train_samples},
      {"data.synthetic_test_samples", job.synthetic_test_samples}};
  for (const auto& [key, count] : counts) {
    if (count >= 1 && count <= kSyntheticSamplesMax) continue;
    return InvalidArgument(
        fmt::format("{} is {}, expected 1 to {}", key, count, kSyntheticSamplesMax));
  }
  const DigitPainter painter;
  return OpenedDataSet(std::make_unique<PictureSet>(
      PictureSet::Parts{.shape = {DigitPainter::kSide, DigitPainter::kSide, 1},
                        .class_count = DigitPainter::kClassCount,
                        .class_names = {},
                        .normalisation = {{DigitPainter::kMean}, {DigitPainter::kStddev}},
                        .train = DrawDigits(painter, Split::kTrain, job.synthetic_train_samples),
                        .test = DrawDigits(painter, Split::kTest, job.synthetic_test_samples)},
      MakeTransform(job)));
}

Status UnknownDataSet(const std::string& name) {
  const std::vector<std::string> known = DataSetNames();
  const std::string question = DidYouMean(name, known);
  return InvalidArgument(fmt::format("unknown data set '{}': {}{}known are {}", name, question,
                                     question.empty() ? "" : " ", JoinNames(known)));
}

// A table has no pictures, and only a folder has a file for each.
Status CheckPictureKeys(const Job& job) {
  if (!job.skip_list.empty() && job.dataset != "imagefolder") {
    return InvalidArgument(fmt::format(
        "data.skip names pictures of an imagefolder, and the data set is {}; leave it out",
        job.dataset));
  }
  if (job.dataset != "sdss" || (job.resize == 0 && job.augment.empty())) return Status();
  const char* key = job.resize != 0 ? "data.resize" : "data.augment";
  return InvalidArgument(fmt::format("{} is for pictures, and sdss is a table; leave it out", key));
}

OpenedDataSet OpenWhole(const Job& job, DataWarning warn) {
  if (job.dataset == "mnist") return OpenIdx(job, Mnist());
  if (job.dataset == "fashion-mnist") return OpenIdx(job, FashionMnist());
  if (job.dataset == "cifar10") return OpenCifar(job, CifarKind::kCifar10);
  if (job.dataset == "cifar100") return OpenCifar(job, CifarKind::kCifar100);
  if (job.dataset == "sdss") return OpenSdss(job);
  if (job.dataset == "imagefolder") return ImageFolder::Open(job, warn);
  if (job.dataset == "synthetic-digits") return OpenSyntheticDigits(job);
  if (job.dataset == "synthetic-imagenet")
    return OpenedDataSet(std::make_unique<SyntheticImageNet>(job));
  return UnknownDataSet(job.dataset);
}

}  // namespace

std::vector<std::string> DataSet::class_names() const {
  std::vector<std::string> names;
  for (uint32_t c = 0; c < class_count(); ++c) names.push_back(std::to_string(c));
  return names;
}

Status DataSet::ReadAugmented(uint64_t, std::span<const uint64_t> indices, Batch* batch) const {
  return Read(Split::kTrain, indices, batch);
}

Result<int32_t> DataSet::Label(Split split, uint64_t index) const {
  Batch batch;
  if (Status s = Read(split, std::span(&index, 1), &batch); !s.ok()) return s;
  return batch.labels[0];
}

std::vector<std::string> DataSetNames() {
  return {"mnist", "fashion-mnist", "cifar10",          "cifar100",
          "sdss",  "imagefolder",   "synthetic-digits", "synthetic-imagenet"};
}

OpenedDataSet OpenDataSet(const Job& job, DataWarning warn) {
  if (Status s = CheckPictureKeys(job); !s.ok()) return s;
  OpenedDataSet whole = OpenWhole(job, std::move(warn));
  if (!whole.ok() || (job.train_limit == 0 && job.test_limit == 0)) return whole;
  const Subset::Limits limits{.train = job.train_limit, .test = job.test_limit};
  return OpenedDataSet(std::make_unique<Subset>(*std::move(whole), limits, job.seed));
}

bool HoldsIdxFiles(const std::string& folder) {
  for (const char* split : {"train", "t10k"}) {
    const std::string images = fmt::format("{}-images", split);
    const std::string labels = fmt::format("{}-labels", split);
    if (!FindFile(folder, IdxNames(images.c_str(), "idx3-ubyte"))) return false;
    if (!FindFile(folder, IdxNames(labels.c_str(), "idx1-ubyte"))) return false;
  }
  return true;
}

bool HoldsDataSet(const std::string& name, const std::string& folder) {
  for (CifarKind kind : {CifarKind::kCifar10, CifarKind::kCifar100}) {
    if (name != (kind == CifarKind::kCifar10 ? "cifar10" : "cifar100")) continue;
    return HoldsCifar(folder, kind) || HoldsCifar(folder + "/" + CifarFolder(kind), kind);
  }
  if (name == "sdss") return HoldsTable(folder);
  if (name == "imagefolder") return HoldsPictureFolders(folder);
  return HoldsIdxFiles(folder);
}

std::string GuessDataSet(const std::string& path) {
  // The files of MNIST and Fashion-MNIST have the same names.
  const std::string idx = path.find("fashion") == std::string::npos ? "mnist" : "fashion-mnist";
  for (const std::string& name : {std::string("cifar10"), std::string("cifar100"), idx,
                                  std::string("imagefolder"), std::string("sdss")}) {
    if (HoldsDataSet(name, path)) return name;
  }
  std::error_code ignored;
  return path.ends_with(".csv") && fs::is_regular_file(path, ignored) ? "sdss" : "";
}

std::string FindDataFolder(const std::string& name, const std::string& parent) {
  std::vector<std::string> folders{name};
  if (name == "cifar10") folders.push_back(CifarFolder(CifarKind::kCifar10));
  if (name == "cifar100") folders.push_back(CifarFolder(CifarKind::kCifar100));
  for (const std::string& folder : folders) {
    if (HoldsDataSet(name, parent + folder)) return parent + folder;
  }
  return "";
}

DataFacts FactsOf(const DataSet& data) {
  return {.train_samples = data.sample_count(Split::kTrain),
          .test_samples = data.sample_count(Split::kTest),
          .shape = data.shape(),
          .class_count = data.class_count(),
          .fingerprint = data.fingerprint()};
}

}  // namespace pando
