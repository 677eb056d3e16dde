// DataSet: labelled samples by index. data/kinds.h lists the kinds of data sets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/status.h"
#include "plan/job.h"
#include "plan/job_plan.h"

namespace pando {

enum class Split : uint8_t { kTrain, kTest };

class Augmenter;

// Threads: Read may be called from several threads at once; a data set is immutable once opened.
class DataSet {
 public:
  virtual ~DataSet() = default;
  virtual SampleShape shape() const = 0;
  virtual uint32_t class_count() const = 0;
  virtual std::vector<std::string> class_names() const;  // by class index; "0", "1" where none are
                                                         // known
  // Further facts for people, one per line (`pando data inspect`).
  virtual std::vector<std::string> remarks() const { return {}; }
  virtual uint64_t sample_count(Split split) const = 0;
  // Its class names are filled in by facts().
  virtual Preprocessing preprocessing() const { return {}; }
  // P38: counts, sizes and a hash of a sample; equal on every worker of a job.
  virtual uint64_t fingerprint() const = 0;
  // The class of a sample, if possible without reading the rest of it.
  // REQUIRES: index < sample_count(split).
  virtual Result<int32_t> Label(Split split, uint64_t index) const;
  // Replaces `batch` by the samples with these indices, in this order.
  // REQUIRES: indices < sample_count(split).
  virtual Status Read(Split split, std::span<const uint64_t> indices, Batch* batch) const = 0;
  // Training samples, with the augmentation of this epoch (P37): by default the augmenter's moves.
  virtual Status ReadAugmented(uint64_t epoch, std::span<const uint64_t> indices,
                               Batch* batch) const;
  // What a plan needs of the data. Only workers need the samples.
  DataFacts facts() const;

 private:
  virtual const Augmenter* augmenter() const { return nullptr; }
};

using OpenedDataSet = Result<std::unique_ptr<DataSet>>;

// Reports what a data set tolerates: a cache that cannot be opened. Called on any thread.
using DataWarning = std::function<void(const std::string& text)>;

// Opens the data set of job.dataset and job.data_path. Errors name the file, the place and what was
// expected.
OpenedDataSet OpenDataSet(const Job& job, const DataWarning& warn = nullptr);
std::vector<std::string> DataSetNames();

// Whether the files of the data set with this name are in `folder` itself, or in the archive's
// folder in it.
bool HoldsDataSet(const std::string& name, const std::string& folder);
// Makes room in `batch` for pictures as bytes, and clears the rest.
void PreparePictures(const SampleShape& shape, const Normalisation& normalisation, size_t count,
                     Batch* batch);
// The data set whose files are at `path`, judged by file names; empty if it is unknown.
std::string GuessDataSet(const std::string& path);
// The first of the folders below `parent` that holds the data set with this name; empty if none
// does.
std::string FindDataFolder(const std::string& name, const std::string& parent);

}  // namespace pando
