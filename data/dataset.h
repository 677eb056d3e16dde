// DataSet gives labelled samples by index. data/kinds.h lists the kinds of data sets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/result.h"
#include "plan/job.h"
#include "plan/job_plan.h"

namespace pando {

enum class Split : uint8_t { kTrain, kTest };

class Augmenter;

// Samples of one split, in the order of their batch.
struct Samples {
  Split split = Split::kTrain;
  std::span<const uint64_t> indices;   // each below sample_count(split)
  std::optional<uint64_t> epoch = {};  // for augmentation (P37); none: no augmentation
};

// Threads: any, at the same time; a data set is immutable once opened.
class DataSet {
 public:
  virtual ~DataSet() = default;
  virtual SampleShape shape() const = 0;
  virtual uint32_t class_count() const = 0;
  virtual std::vector<std::string> class_names() const;  // by class index; default: "0", "1"
  // Returns more facts for people, one per line (`pando data inspect`).
  virtual std::vector<std::string> remarks() const { return {}; }
  // Returns facts that every user should see: columns without information, files that are not read.
  // `pando train` prints them too.
  virtual std::vector<std::string> notices() const { return {}; }
  virtual uint64_t sample_count(Split split) const = 0;
  // Returns the pictures' normalisation; null if samples are rows of a table, ready to use.
  virtual const Normalisation* normalisation() const { return nullptr; }
  // Draws how each training picture moves after it is read; null: pictures do not move.
  virtual const Augmenter* augmenter() const { return nullptr; }
  // Says how samples become inputs: by default the normalisation. facts() adds the class names.
  virtual Preprocessing preprocessing() const;
  // Returns a hash of counts, sizes and some samples, equal on every worker of a job (P38).
  virtual uint64_t fingerprint() const = 0;
  // Returns the class of a sample, if possible without reading the rest of it.
  // REQUIRES: index < sample_count(split).
  virtual Result<int32_t> Label(Split split, uint64_t index) const;
  // Replaces the content of `batch` by these samples.
  Status Read(const Samples& samples, Batch* batch) const;
  // The two halves of Read, for several threads that read one batch. Prepare makes room for all
  // samples and clears the rest. Fill writes some of them there, part.indices[i] at place + i.
  void Prepare(const Samples& samples, Batch* batch) const;
  virtual Status Fill(const Samples& part, size_t place, Batch* batch) const = 0;
  // Returns the facts that a plan needs about the data. Only workers need the samples.
  DataFacts facts() const;

 protected:
  // Draws the augmenter's moves of these samples, if the batch has any.
  void DrawMoves(const Samples& part, size_t place, Batch* batch) const;
};

using OpenedDataSet = Result<std::unique_ptr<DataSet>>;

// Reports, on any thread, a fault that a data set tolerates, such as a cache that cannot be opened.
using DataWarning = std::function<void(const std::string& text)>;

// Opens the data set of job.dataset and job.data_path. Errors name the file, the place and what was
// expected.
OpenedDataSet OpenDataSet(const Job& job, const DataWarning& warn = nullptr);
std::vector<std::string> DataSetNames();

// Returns whether the files of the data set with this name are in `folder` itself, or in the
// archive's folder in it.
bool HoldsDataSet(const std::string& name, const std::string& folder);
// Returns the data set whose files are at `path`, judged by file names; empty if unknown.
std::string GuessDataSet(const std::string& path);
// Returns the first folder below `parent` that holds the data set with this name; empty if none
// does.
std::string FindDataFolder(const std::string& name, const std::string& parent);

}  // namespace pando
