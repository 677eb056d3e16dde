// OpenedJob: a job with its data set opened and its model built: what the commands need that
// compute in their own process.
#pragma once

#include <memory>

#include "common/status.h"
#include "data/dataset.h"
#include "models/network.h"
#include "plan/job_plan.h"

namespace pando {

struct OpenedJob {
  std::unique_ptr<DataSet> data;
  Model model;
  JobPlan plan;
  static Result<OpenedJob> Open(const Job& job);
};

}  // namespace pando
