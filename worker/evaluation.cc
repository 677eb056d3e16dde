#include "worker/evaluation.h"

#include <algorithm>

namespace pando {

void Evaluation::EnterView(Micros now) {
  if (!task_) return;
  task_->ask_at = now;
  task_->interval = Micros(0);
}

void Evaluation::OnEvaluate(Micros now, const Evaluate& request) {
  if (request.first_sample > request.last_sample) return;
  if (request.last_sample > options_.test_samples) return;
  if (!IsAbout(request.version)) {
    if (task_) port_.OnCalledOff(task_->version);
    // With layer residency nothing is pulled before it is wanted.
    const std::vector<bool> arrived(options_.shard_count, options_.is_layered);
    task_ = Task{.version = request.version, .arrived = arrived, .ask_at = now};
  }
  if (task_->last_result && task_->last_result->slice == request.slice) {
    Report();
  } else if (!task_->request || task_->request->slice != request.slice) {
    task_->request = request;
    compute_.EvaluateSlice(request);
  }
}

void Evaluation::OnEvaluationResult(const EvaluationResult& result) {
  if (!IsAbout(result.version)) return;
  task_->request.reset();
  task_->last_result = result;
  Report();
}

void Evaluation::Report() {
  if (!task_ || !task_->last_result || !port_.MayReport(*task_->last_result)) return;
  member_.SendToScheduler(*task_->last_result);
}

void Evaluation::OnParams(Micros now, const ParamsItem& item) {
  if (!IsAbout(item.version)) return;
  task_->ask_at = std::max(task_->ask_at, now + options_.put_off);
  if (item.form != ParamsForm::kExact || task_->arrived[item.shard.value()]) return;
  task_->arrived[item.shard.value()] = true;
  compute_.EvaluationParametersArrived(item.shard, item.version, item.payload);
}

void Evaluation::OnGone(Version version) {
  if (!IsAbout(version)) return;
  port_.OnCalledOff(version);
  task_->request.reset();
}

void Evaluation::Tick(Micros now) {
  if (now < NextDeadline()) return;
  std::vector<PullItem> missing;
  for (uint32_t s = 0; s < task_->arrived.size(); ++s) {
    if (!task_->arrived[s]) missing.push_back({ShardId(s), task_->version});
  }
  if (!missing.empty()) port_.Pull(now, missing);
  task_->interval = std::clamp(2 * task_->interval, kRetryFirst, options_.retry_max);
  task_->ask_at = missing.empty() ? kNever : now + task_->interval;
}

}  // namespace pando
