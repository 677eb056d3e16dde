// The data of a job, and what the job comes to on them: how many steps, tensors, shards and bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "data/dataset.h"
#include "job/job_file.h"
#include "models/network.h"
#include "plan/job_plan.h"

namespace pando {

// Without data.name and data.path: MNIST where data/mnist or ../shared/data/mnist holds it, else
// synthetic-digits. With a name alone: its folder in those places. Returns a notice for people, or
// nothing where all was given.
std::string ChooseData(JobDraft* draft);

// A job with its data set opened and its model built. The commands that compute in their own
// process need it.
struct OpenedJob {
  std::unique_ptr<DataSet> data;
  Model model;
  JobPlan plan;
  std::vector<std::string> notices;  // the data set's

  static Result<OpenedJob> Open(const Job& job, const DataWarning& warn = nullptr);
};

// Opens the data set and builds the model; they and the micro-batches fit one another. The data set
// is closed again. `pando train` calls it before it starts anything, so that bad input is one clear
// line.
Result<OpenedJob> MakeRunPlan(const Job& job);
// What the run learns from, for people: counts, classes and the data set's notices. One line each.
std::vector<std::string> DataLines(const OpenedJob& planned);
// Of --dry-run, for people. Every line starts with '#', so that job and plan together are still a
// job file.
std::string RunPlanText(const OpenedJob& planned);

}  // namespace pando
