#include "job/opened_job.h"

#include <utility>

namespace pando {

Result<OpenedJob> OpenedJob::Open(const Job& job) {
  Result<std::unique_ptr<DataSet>> data = OpenDataSet(job);
  if (!data.ok()) return data.status();
  Result<Model> model = Model::Create(job, (*data)->shape(), (*data)->class_count());
  if (!model.ok()) return model.status();
  JobPlan plan(job, FactsOf(**data), model->layout());
  return OpenedJob{*std::move(data), *std::move(model), std::move(plan)};
}

}  // namespace pando
