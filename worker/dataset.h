// DataSet: labelled samples by index, as the worker reads them. See the files beside this one for
// each kind: idx (MNIST, Fashion-MNIST), cifar, table_set (SDSS), image_folder, synthetic-digits,
// synthetic_imagenet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/job.h"
#include "common/job_plan.h"
#include "common/status.h"

namespace pando {

enum class Split : uint8_t { kTrain, kTest };

// Threads: Read may be called from several threads at once; a data set is immutable once opened.
class DataSet {
 public:
  virtual ~DataSet() = default;
  virtual SampleShape shape() const = 0;
  virtual uint32_t class_count() const = 0;
  virtual std::vector<std::string> class_names() const;  // by class index; "0", "1" where none are
                                                         // known
  // What else people may want to know of it, a line each (`pando data inspect`).
  virtual std::vector<std::string> remarks() const { return {}; }
  virtual uint64_t sample_count(Split split) const = 0;
  // P38: counts, sizes and a hash of a sample; equal on every worker of a job.
  virtual uint64_t fingerprint() const = 0;
  // The class of a sample, without reading more of it where that is possible.
  // REQUIRES: index < sample_count(split).
  virtual Result<int32_t> Label(Split split, uint64_t index) const;
  // Replaces `batch` by the samples with these indices, in this order.
  // REQUIRES: indices < sample_count(split).
  virtual Status Read(Split split, std::span<const uint64_t> indices, Batch* batch) const = 0;
  // Training samples, with what data.augment draws for them in this epoch (P37).
  virtual Status ReadAugmented(uint64_t epoch, std::span<const uint64_t> indices,
                               Batch* batch) const;
};

// Told of what a data set puts up with: pictures that are replaced. Called on any thread.
using DataWarning = std::function<void(const std::string& text)>;

// Opens what job.dataset and job.data_path say. Errors name the file, the place and what was
// expected.
Result<std::unique_ptr<DataSet>> OpenDataSet(const Job& job, DataWarning warn = nullptr);
std::vector<std::string> DataSetNames();
// What a plan needs of the data; the samples themselves are the workers' business.
DataFacts FactsOf(const DataSet& data);

// Whether `folder` holds the four idx files (gz or not): for choosing a default.
bool HoldsIdxFiles(const std::string& folder);
// Whether the files of the data set so named are in `folder` itself, or in the archive's own folder
// in it.
bool HoldsDataSet(const std::string& name, const std::string& folder);
// The data set whose files are at `path`, as far as names of files tell; empty if none is known.
std::string GuessDataSet(const std::string& path);
// The first of the folders below `parent` that holds the data set so named; empty if none does.
std::string FindDataFolder(const std::string& name, const std::string& parent);

}  // namespace pando
