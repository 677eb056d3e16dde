// OpenedJob: a job with its data set opened and its model built: what the commands need that
// compute in their own process.
#pragma once

#include <memory>

#include "common/job_plan.h"
#include "common/status.h"
#include "models/network.h"
#include "worker/dataset.h"

namespace pando {

struct OpenedJob {
  std::unique_ptr<DataSet> data;
  Model model;
  JobPlan plan;
  static Result<OpenedJob> Open(const Job& job);
};

}  // namespace pando
