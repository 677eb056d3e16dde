// TableSet: rows of numbers, each with a class, in memory: the Sloan Digital Sky Survey's catalogue
// (`sdss`). Called by dataset.cc.
//
// One CSV file is split here: every fifth row of a fixed shuffle is a test sample for any seed of
// the job. A folder with train.csv and test.csv is split already. Classes are those of the training
// rows, sorted bytewise. Columns are standardised with the training rows' mean and deviation.
// Identifiers of an observation (objid, specobjid, plate, mjd, fiberid, run, ...) are omitted by
// default: a plate has spectra of one class, so they leak the class.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace pando {

class TableSet final : public DataSet {
 public:
  struct Rows {                 // one split
    std::vector<float> values;  // [row, column], standardised
    std::vector<int32_t> labels;
  };
  // REQUIRES: each split has `columns` values for each label, and labels below the class count.
  TableSet(uint32_t columns, std::vector<std::string> class_names, Rows train, Rows test,
           std::vector<std::string> remarks = {});

  SampleShape shape() const override { return {1, 1, columns_}; }
  uint32_t class_count() const override { return static_cast<uint32_t>(class_names_.size()); }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::vector<std::string> remarks() const override { return remarks_; }
  uint64_t sample_count(Split split) const override { return rows(split).labels.size(); }
  uint64_t fingerprint() const override { return fingerprint_; }
  Result<int32_t> Label(Split split, uint64_t index) const override {
    return rows(split).labels[index];
  }
  Status Read(Split split, std::span<const uint64_t> indices, Batch* batch) const override;

 private:
  const Rows& rows(Split split) const { return split == Split::kTrain ? train_ : test_; }
  uint64_t MakeFingerprint() const;

  const uint32_t columns_;
  const std::vector<std::string> class_names_;
  const Rows train_;
  const Rows test_;
  const std::vector<std::string> remarks_;
  uint64_t fingerprint_;
};

// job.data_path: a CSV file, a folder that holds one, or a folder of train.csv and test.csv.
Result<std::unique_ptr<DataSet>> OpenSdss(const Job& job);
bool HoldsTable(const std::string& folder);

}  // namespace pando
