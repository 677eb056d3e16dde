// Samples without labels for a trained network: pictures in files, or the rows of a table. They
// become inputs as the network's training samples did. `pando predict` uses them; each kind is
// implemented beside its data set.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/result.h"
#include "plan/job_plan.h"

namespace pando {

struct UnlabelledSamples {
  std::vector<std::string> names;    // paths of pictures; numbers of rows, from 1
  std::vector<std::string> notices;  // for people: files not read, unknown categories
  // Replaces the content of `batch` by samples [first, last), with labels 0.
  std::function<Status(size_t first, size_t last, Batch* batch)> read;
};

// Both use the plan's data.preprocessing and data.shape, and its job's data set and missing values.

// Opens files, and the pictures in folders and their sub-folders, sorted (image_folder.cc).
// Pictures for an imagefolder's network are cut like its test pictures. Others are resized whole,
// and become grey if the network's have one channel. Notices say what was assumed about these.
enum class Ink : uint8_t { kAsItIs, kInverted };  // black becomes white
Result<UnlabelledSamples> OpenPictures(const std::vector<std::string>& paths, const JobPlan& plan,
                                       Ink ink = Ink::kAsItIs);

// Opens a CSV file with the columns with which the network was trained (table_set.cc). Other
// columns, also the label, are not read.
Result<UnlabelledSamples> OpenRows(const std::string& path, const JobPlan& plan);

}  // namespace pando
