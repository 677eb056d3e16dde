// Opens a job's data and model: the numbers of steps, tensors, shards and bytes follow from them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "data/dataset.h"
#include "job/job_draft.h"
#include "models/model.h"
#include "plan/job_plan.h"

namespace pando {

// Chooses the data. Without data.name and data.path, this is MNIST if data/mnist or
// ../shared/data/mnist holds it, otherwise synthetic-digits. With data.name alone, it is that data
// set's folder in those places. Returns a notice for people, or "" if there is nothing to say.
std::string ChooseData(JobDraft* draft);

// A job with its data set opened and its model built, for commands that compute in their own
// process.
struct OpenedJob {
  std::unique_ptr<DataSet> data;
  Model model;
  JobPlan plan;
  std::vector<std::string> notices;  // of the data set

  static Result<OpenedJob> Open(const Job& job, const DataWarning& warn = nullptr);
};

// Opens the data set, builds the model, and checks that they and the micro-batches fit together.
// Closes the data set again. `pando train` calls it before it starts anything, so that bad input
// gives one clear line.
Result<OpenedJob> MakeRunPlan(const Job& job);
// Describes the training data: counts, classes and the data set's notices, one line each.
std::vector<std::string> DataLines(const OpenedJob& planned);
// Returns the text of --dry-run. Every line starts with '#', so that job and plan together are
// still a job file.
std::string RunPlanText(const OpenedJob& planned);

}  // namespace pando
