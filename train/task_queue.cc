#include "train/task_queue.h"

#include <algorithm>
#include <iterator>

namespace pando {

// ---- the protocol thread ------------------------------------------------------------------------

void TaskQueue::Push(const std::shared_ptr<ComputeCall>& call,
                     const std::vector<MicroBatch>& micro_batches) {
  call->unfinished_count = micro_batches.size();
  std::lock_guard lock(mutex_);
  std::erase_if(running_, [](const auto& other) { return other.expired(); });
  running_.push_back(call);
  for (MicroBatch m : micro_batches)
    micro_batches_.emplace(Key(call->step, call->ticket, m), MicroBatchTask{call, m});
  if (call->sum && NextStep(call->step) > guessed_step_) {
    guessed_step_ = NextStep(call->step);
    guessed_share_ = micro_batches;
  }
  has_task_.notify_all();
}

void TaskQueue::Push(const std::shared_ptr<SliceEvaluation>& evaluation) {
  {
    std::lock_guard lock(mutex_);
    for (size_t chunk = 0; chunk < evaluation->scores.size(); ++chunk)
      chunks_.push_back({evaluation, chunk});
    chunk_count_ = chunks_.size();
  }
  has_task_.notify_all();
  parameters_.Wake();
}

void TaskQueue::DropChunks() {
  std::lock_guard lock(mutex_);
  chunks_.clear();
  chunk_count_ = 0;
}

// The calls that follow have other shares.
void TaskQueue::Abandon(const std::function<bool(ComputeCall&)>& is_abandoned) {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(micro_batches_, [&](auto& entry) { return is_abandoned(*entry.second.call); });
    for (const std::weak_ptr<ComputeCall>& running : running_) {
      if (auto call = running.lock(); call != nullptr && is_abandoned(*call))
        call->is_abandoned = true;
    }
    guessed_step_ = Step(0);
    guessed_share_.clear();
  }
  parameters_.Wake();
}

// ---- the computing threads ----------------------------------------------------------------------

std::optional<ComputeTask> TaskQueue::Take(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto has_news = [&] { return is_stopping_ || !chunks_.empty() || !micro_batches_.empty(); };
  if (deadline == kNoDeadline) {
    has_task_.wait(lock, has_news);
  } else if (!has_task_.wait_until(lock, deadline, has_news)) {
    return std::nullopt;
  }
  if (is_stopping_) return std::nullopt;
  if (!chunks_.empty()) {  // first, because servers keep a version for it (P31)
    ComputeTask task = std::move(chunks_.front());
    chunks_.pop_front();
    chunk_count_ = chunks_.size();
    return task;
  }
  return std::move(micro_batches_.extract(micro_batches_.begin()).mapped());
}

void TaskQueue::GiveBack(const MicroBatchTask& task) {
  const ComputeCall& call = *task.call;
  std::lock_guard lock(mutex_);
  if (call.is_abandoned) return;  // set under the same lock
  micro_batches_.emplace(Key(call.step, call.ticket, task.micro_batch), task);
}

void TaskQueue::GiveBack(const ChunkTask& task) {
  std::lock_guard lock(mutex_);
  if (task.evaluation->is_abandoned) return;
  chunks_.push_back(task);
  chunk_count_ = chunks_.size();
}

bool TaskQueue::AbandonFailed(ComputeCall& call) {
  {
    std::lock_guard lock(mutex_);
    if (call.is_abandoned.exchange(true)) return false;
    std::erase_if(micro_batches_,
                  [&](const auto& entry) { return entry.second.call.get() == &call; });
  }
  parameters_.Wake();
  return true;
}

// ---- any thread ---------------------------------------------------------------------------------

void TaskQueue::Stop() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_task_.notify_all();
  parameters_.Wake();
}

std::vector<TaskQueue::StepPart> TaskQueue::Expected(size_t first, size_t count_max,
                                                     size_t steps_max) const {
  std::lock_guard lock(mutex_);
  std::vector<StepPart> expected;
  const size_t queued = micro_batches_.size();
  auto task = std::next(micro_batches_.begin(), static_cast<ptrdiff_t>(std::min(first, queued)));
  for (; task != micro_batches_.end() && expected.size() < count_max; ++task)
    expected.emplace_back(task->second.call->step, task->second.micro_batch);
  const size_t share = guessed_share_.size();
  while (share > 0 && expected.size() < count_max) {
    const size_t beyond = first + expected.size() - queued;
    if (beyond / share >= steps_max) break;
    expected.emplace_back(Step(guessed_step_.value() + beyond / share),
                          guessed_share_[beyond % share]);
  }
  return expected;
}

std::vector<ChunkTask> TaskQueue::ExpectedChunks(size_t count_max) const {
  std::lock_guard lock(mutex_);
  const size_t count = std::min(chunks_.size(), count_max);
  return {chunks_.begin(), chunks_.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace pando
