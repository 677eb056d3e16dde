#include "node/run_model.h"

#include "plan/external_model.h"

namespace pando {

Result<Model> CreateModel(const Membership& membership) {
  return Model::Create(membership.job, membership.data.shape, membership.data.class_count);
}

Result<JobPlan> MakeJobPlan(const Membership& membership) {
  if (IsExternal(membership.job)) return ExternalPlan(membership.job);
  PANDO_ASSIGN_OR_RETURN(Model model, CreateModel(membership));
  return JobPlan(membership.job, membership.data, model.layout());
}

}  // namespace pando
