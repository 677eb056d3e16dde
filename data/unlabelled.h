// Samples without labels, for a network that is trained already: pictures in files, or the rows of
// a table. They become inputs as the network's training samples did. Called by `pando predict`;
// implemented beside the data set of their kind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/status.h"
#include "plan/job_plan.h"

namespace pando {

struct UnlabelledSamples {
  std::vector<std::string> names;    // paths of pictures; numbers of rows, from 1
  std::vector<std::string> notices;  // files not read, unknown categories: for people
  // Replaces `batch` by the samples [first, last). Their labels are 0.
  std::function<Status(size_t first, size_t last, Batch* batch)> read;
};

// Of a plan they use data.preprocessing, data.shape, and the job's data set and missing values.

// image_folder: files, and the pictures in folders and their sub-folders, sorted. Pictures for an
// imagefolder's network are cut as its test pictures are; others are resized whole, and become grey
// where the network's have one channel. Notices say what was assumed of these.
enum class Ink : uint8_t { kAsItIs, kInverted };  // black becomes white
Result<UnlabelledSamples> OpenPictures(const std::vector<std::string>& paths, const JobPlan& plan,
                                       Ink ink = Ink::kAsItIs);

// table_set: a CSV file with the columns that the network was trained with. Other columns, the
// label among them, are not read.
Result<UnlabelledSamples> OpenRows(const std::string& path, const JobPlan& plan);

}  // namespace pando
