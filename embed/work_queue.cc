#include "embed/work_queue.h"

#include <iterator>

namespace pando {

void WorkQueue::Push(const std::shared_ptr<ProgramCall>& call,
                     const std::vector<MicroBatch>& micro_batches) {
  std::lock_guard lock(mutex_);
  call->unfinished_count = micro_batches.size();
  for (MicroBatch m : micro_batches)
    micro_batches_.emplace(Key(call->step, call->ticket, m), MicroBatchWork{call, m});
  if (call->sum && NextStep(call->step) > guessed_step_) {
    guessed_step_ = NextStep(call->step);
    guessed_share_ = micro_batches;
  }
  has_news_.notify_all();
}

void WorkQueue::Push(std::shared_ptr<ProgramEvaluation> evaluation) {
  std::lock_guard lock(mutex_);
  evaluations_.push_back(std::move(evaluation));
  evaluation_count_ = evaluations_.size();
  has_news_.notify_all();
}

void WorkQueue::DropAbandoned() {
  std::lock_guard lock(mutex_);
  std::erase_if(micro_batches_,
                [](const auto& entry) { return entry.second.call->is_abandoned.load(); });
  guessed_share_.clear();
  guessed_step_ = Step(0);
}

void WorkQueue::DropEvaluations() {
  std::lock_guard lock(mutex_);
  evaluations_.clear();
  evaluation_count_ = 0;
}

void WorkQueue::Wake() {
  std::lock_guard lock(mutex_);
  has_news_.notify_all();
}

std::optional<ProgramTask> WorkQueue::Take(Deadline deadline,
                                           const std::function<bool()>& is_over) {
  std::unique_lock lock(mutex_);
  has_news_.wait_until(lock, deadline, [&] {
    return is_over() || !micro_batches_.empty() || !evaluations_.empty();
  });
  if (is_over()) return std::nullopt;
  if (!evaluations_.empty()) {
    ProgramTask task = std::move(evaluations_.front());
    evaluations_.pop_front();
    evaluation_count_ = evaluations_.size();
    return task;
  }
  if (micro_batches_.empty()) return std::nullopt;
  ProgramTask task = std::move(micro_batches_.begin()->second);
  micro_batches_.erase(micro_batches_.begin());
  return task;
}

void WorkQueue::GiveBack(const MicroBatchWork& work) {
  std::lock_guard lock(mutex_);
  if (work.call->is_abandoned) return;
  micro_batches_.emplace(Key(work.call->step, work.call->ticket, work.micro_batch), work);
}

std::optional<std::pair<Step, MicroBatch>> WorkQueue::Peek(uint32_t ahead) const {
  std::lock_guard lock(mutex_);
  if (ahead < micro_batches_.size()) {
    const MicroBatchWork& work = std::next(micro_batches_.begin(), ahead)->second;
    return std::pair(work.call->step, work.micro_batch);
  }
  if (guessed_share_.empty()) return std::nullopt;
  const uint64_t beyond = ahead - micro_batches_.size();
  return std::pair(Step(guessed_step_.value() + beyond / guessed_share_.size()),
                   guessed_share_[beyond % guessed_share_.size()]);
}

}  // namespace pando
