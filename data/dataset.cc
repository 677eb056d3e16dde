#include "data/dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/cpu/denormals_kept.h"
#include "common/hash.h"
#include "common/text.h"
#include "data/augmenter.h"
#include "data/kinds.h"
#include "data/permutation.h"
#include "data/table_files.h"

namespace pando {
namespace {

struct Kind {
  const char* name;
  OpenedDataSet (*open)(const Job& job, const DataWarning& warn);
  bool (*is_in)(const std::string& folder) = nullptr;  // null: no files
  const char* archive_folder = nullptr;                // the published archive unpacks to it
};

constexpr Kind kKinds[] = {
    {"mnist", OpenMnist, HoldsIdxFiles},
    {"fashion-mnist", OpenFashionMnist, HoldsIdxFiles},
    {"cifar10", OpenCifar10, HoldsCifar10, kCifar10Folder},
    {"cifar100", OpenCifar100, HoldsCifar100, kCifar100Folder},
    {"sdss", OpenSdss, HoldsTable},
    {"csv", OpenCsv, HoldsTable},
    {"imagefolder", OpenImageFolder, HoldsPictureFolders},
    {"synthetic-digits", OpenSyntheticDigits},
    {"synthetic-imagenet", OpenSyntheticImageNet},
};

const Kind* FindKind(const std::string& name) {
  const auto kind = std::ranges::find(kKinds, name, &Kind::name);
  return kind == std::end(kKinds) ? nullptr : kind;
}

Status UnknownDataSet(const std::string& name) {
  const std::vector<std::string> known = DataSetNames();
  const std::string question = DidYouMean(name, known);
  return InvalidArgument(fmt::format("unknown data set '{}': {}{}known are {}", name, question,
                                     question.empty() ? "" : " ", Joined(known)));
}

// Returns for each float the shortest decimal number that is nearest to it, such as 0.1307.
std::vector<double> ShortDoubles(const std::vector<float>& values) {
  std::vector<double> result;
  for (float value : values) result.push_back(*ParseNumber<double>(fmt::format("{}", value)));
  return result;
}

// Refuses keys of another kind of data set: of pictures, of a table, or of a folder of pictures.
Status CheckKeys(const Job& job) {
  if (!job.skip_list.empty() && job.dataset != "imagefolder") {
    return InvalidArgument(fmt::format(
        "data.skip names pictures of an imagefolder, and the data set is {}; leave it out",
        job.dataset));
  }
  const bool is_table = job.dataset == "sdss" || job.dataset == "csv";
  const char* table_key = !job.label.empty()                     ? "data.label"
                          : !job.columns.empty()                 ? "data.columns"
                          : job.missing != MissingValues::kError ? "data.missing"
                                                                 : nullptr;
  if (!is_table && table_key != nullptr) {
    return InvalidArgument(
        fmt::format("{} is for tables, and {} has pictures; leave it out, or give --dataset csv",
                    table_key, job.dataset));
  }
  if (!is_table || (job.resize == 0 && job.augment.empty())) return Status();
  const char* key = job.resize != 0 ? "data.resize" : "data.augment";
  return InvalidArgument(
      fmt::format("{} is for pictures, and {} is a table; leave it out", key, job.dataset));
}

// The shuffle that chooses samples differs from each epoch's shuffle.
constexpr uint64_t kChoiceOfTrain = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kChoiceOfTest = kChoiceOfTrain - 1;
constexpr uint64_t kChoiceOfValidation = kChoiceOfTrain - 2;

// A split of a Subset: its sample i is sample choice.At(first + i) of the source.
struct Part {
  Split source = Split::kTrain;
  uint64_t first = 0;
  uint64_t count = 0;
  std::optional<Permutation> choice;  // none: the whole source in its order
};

// Subset has some samples of a data set (data.limit and data.test_limit, or data.validation). Every
// worker has the same ones, because they follow from the seed.
class Subset final : public DataSet {
 public:
  Subset(std::unique_ptr<DataSet> whole, uint64_t seed, Part train, Part test)
      : whole_(std::move(whole)), seed_(seed), parts_{std::move(train), std::move(test)} {}

  SampleShape shape() const override { return whole_->shape(); }
  uint32_t class_count() const override { return whole_->class_count(); }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  std::vector<std::string> remarks() const override { return whole_->remarks(); }
  std::vector<std::string> notices() const override { return whole_->notices(); }
  const Normalisation* normalisation() const override { return whole_->normalisation(); }
  const Augmenter* augmenter() const override { return whole_->augmenter(); }
  Preprocessing preprocessing() const override { return whole_->preprocessing(); }
  uint64_t sample_count(Split split) const override { return part(split).count; }
  uint64_t fingerprint() const override {
    const std::array<uint64_t, 3> numbers{parts_[0].count, parts_[1].count, seed_};
    return Hash64(std::as_bytes(std::span(numbers)), whole_->fingerprint());
  }
  Result<int32_t> Label(Split split, uint64_t index) const override {
    return whole_->Label(part(split).source, InWhole(split, std::span(&index, 1))[0]);
  }
  Status Fill(const Samples& samples, size_t place, Batch* batch) const override {
    const std::vector<uint64_t> indices = InWhole(samples.split, samples.indices);
    return whole_->Fill({part(samples.split).source, indices, samples.epoch}, place, batch);
  }

 private:
  const Part& part(Split split) const { return parts_[static_cast<size_t>(split)]; }
  std::vector<uint64_t> InWhole(Split split, std::span<const uint64_t> indices) const {
    std::vector<uint64_t> result(indices.begin(), indices.end());
    const Part& from = part(split);
    for (uint64_t& index : result) {
      PANDO_CHECK(index < from.count);
      if (from.choice) index = from.choice->At(from.first + index);
    }
    return result;
  }

  const std::unique_ptr<DataSet> whole_;
  const uint64_t seed_;
  const Part parts_[2];
};

OpenedDataSet Limit(std::unique_ptr<DataSet> whole, const Job& job) {
  if (job.train_limit == 0 && job.test_limit == 0) return whole;
  const auto part = [&](Split split, uint64_t limit, uint64_t choice) {
    const uint64_t count = whole->sample_count(split);
    Part limited{.source = split, .count = limit == 0 ? count : std::min(count, limit)};
    if (limited.count < count) limited.choice.emplace(count, job.seed, choice);
    return limited;
  };
  Part train = part(Split::kTrain, job.train_limit, kChoiceOfTrain);
  Part test = part(Split::kTest, job.test_limit, kChoiceOfTest);
  return OpenedDataSet(
      std::make_unique<Subset>(std::move(whole), job.seed, std::move(train), std::move(test)));
}

// Makes a part of the training samples the test split.
OpenedDataSet TakeValidation(std::unique_ptr<DataSet> whole, const Job& job) {
  if (job.validation_share == 0) return whole;
  const uint64_t count = whole->sample_count(Split::kTrain);
  const auto taken =
      static_cast<uint64_t>(std::llround(static_cast<double>(count) * job.validation_share));
  if (taken == 0 || taken == count) {
    return InvalidArgument(fmt::format(
        "data.validation = {} takes {} of {} training samples; give a share that leaves "
        "some on both sides",
        job.validation_share, taken, count));
  }
  const Permutation choice(count, job.seed, kChoiceOfValidation);
  return OpenedDataSet(std::make_unique<Subset>(
      std::move(whole), job.seed, Part{.count = count - taken, .choice = choice},
      Part{.first = count - taken, .count = taken, .choice = choice}));
}

}  // namespace

std::vector<std::string> DataSet::class_names() const {
  std::vector<std::string> names;
  for (uint32_t c = 0; c < class_count(); ++c) names.push_back(std::to_string(c));
  return names;
}

Preprocessing DataSet::preprocessing() const {
  const Normalisation* pictures = normalisation();
  if (pictures == nullptr) return {};
  return {.mean = ShortDoubles(pictures->mean), .deviation = ShortDoubles(pictures->stddev)};
}

Status DataSet::Read(const Samples& samples, Batch* batch) const {
  Prepare(samples, batch);
  return Fill(samples, 0, batch);
}

void DataSet::Prepare(const Samples& samples, Batch* batch) const {
  const size_t count = samples.indices.size();
  const Augmenter* random = samples.epoch ? augmenter() : nullptr;
  const bool has_moves = random != nullptr && (random->crops() || random->flips());
  batch->shape = shape();
  batch->normalisation = normalisation();
  const size_t size = count * batch->shape.size();
  batch->bytes.resize(batch->normalisation == nullptr ? 0 : size);
  batch->values.resize(batch->normalisation == nullptr ? size : 0);
  batch->moves.resize(has_moves ? count : 0);
  batch->labels.resize(count);
}

void DataSet::DrawMoves(const Samples& part, size_t place, Batch* batch) const {
  if (batch->moves.empty()) return;
  for (const uint64_t sample : part.indices) {
    batch->moves[place++] =
        augmenter()->DrawMove({*part.epoch, sample}, batch->shape.height, batch->shape.width);
  }
}

Result<int32_t> DataSet::Label(Split split, uint64_t index) const {
  Batch batch;
  PANDO_RETURN_IF_ERROR(Read({split, std::span(&index, 1)}, &batch));
  return batch.labels[0];
}

DataFacts DataSet::facts() const {
  Preprocessing inputs = preprocessing();
  inputs.class_names = class_names();
  return {.train_samples = sample_count(Split::kTrain),
          .test_samples = sample_count(Split::kTest),
          .shape = shape(),
          .class_count = class_count(),
          .fingerprint = fingerprint(),
          .preprocessing = std::move(inputs)};
}

std::vector<std::string> DataSetNames() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

OpenedDataSet OpenDataSet(const Job& job, const DataWarning& warn) {
  const DenormalsKept kept;  // workers read with denormals flushed, the scheduler does not
  PANDO_RETURN_IF_ERROR(CheckKeys(job));
  const Kind* kind = FindKind(job.dataset);
  if (kind == nullptr) return UnknownDataSet(job.dataset);
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<DataSet> whole, kind->open(job, warn));
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<DataSet> limited, Limit(std::move(whole), job));
  return TakeValidation(std::move(limited), job);
}

bool HoldsDataSet(const std::string& name, const std::string& folder) {
  const Kind* kind = FindKind(name);
  if (kind == nullptr || kind->is_in == nullptr) return false;
  if (kind->is_in(folder)) return true;
  return kind->archive_folder != nullptr && kind->is_in(folder + "/" + kind->archive_folder);
}

std::string GuessDataSet(const std::string& path) {
  // The files of MNIST and Fashion-MNIST have the same names.
  const std::string idx = path.find("fashion") == std::string::npos ? "mnist" : "fashion-mnist";
  for (const std::string& name :
       {std::string("cifar10"), std::string("cifar100"), idx, std::string("imagefolder")}) {
    if (HoldsDataSet(name, path)) return name;
  }
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(path, ignored);  // CsvFile names its kind
  if (!is_file && !HoldsTable(path)) return "";
  return IsSdss(path) ? "sdss" : "csv";
}

std::string FindDataFolder(const std::string& name, const std::string& parent) {
  const Kind* kind = FindKind(name);
  std::vector<std::string> folders{name};
  if (kind != nullptr && kind->archive_folder != nullptr) folders.push_back(kind->archive_folder);
  for (const std::string& folder : folders) {
    if (HoldsDataSet(name, parent + folder)) return parent + folder;
  }
  return "";
}

}  // namespace pando
