// DataSet: labelled samples by index, as the worker reads them. See the files beside this one for
// each kind: idx (MNIST, Fashion-MNIST), synthetic-digits.
#pragma once

#include <cstdint>
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
  virtual uint64_t sample_count(Split split) const = 0;
  // P38: counts, sizes and a hash of a sample; equal on every worker of a job.
  virtual uint64_t fingerprint() const = 0;
  // Replaces `batch` by the samples with these indices, in this order.
  // REQUIRES: indices < sample_count(split).
  virtual Status Read(Split split, std::span<const uint64_t> indices, Batch* batch) const = 0;
};

// Opens what job.dataset and job.data_path say. Errors name the file, the place and what was
// expected.
Result<std::unique_ptr<DataSet>> OpenDataSet(const Job& job);
std::vector<std::string> DataSetNames();
// What a plan needs of the data; the samples themselves are the workers' business.
DataFacts FactsOf(const DataSet& data);

// Whether `folder` holds the four idx files (gz or not): for choosing a default.
bool HoldsIdxFiles(const std::string& folder);

}  // namespace pando
