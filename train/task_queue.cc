#include "train/task_queue.h"

namespace pando {

TaskQueue::TaskQueue(const StepPlan& steps, size_t read_ahead_max, BatchSource& batches,
                     ParameterStore& parameters)
    : step_count_(steps.step_count()),
      read_ahead_max_(read_ahead_max),
      batches_(batches),
      parameters_(parameters) {}

// ---- the protocol thread ------------------------------------------------------------------------

void TaskQueue::Push(const std::shared_ptr<ComputeCall>& call,
                     const std::vector<MicroBatch>& micro_batches) {
  call->unfinished_count = micro_batches.size();
  {
    std::lock_guard lock(mutex_);
    std::erase_if(running_, [](const auto& other) { return other.expired(); });
    running_.push_back(call);
    for (MicroBatch m : micro_batches)
      micro_batches_.emplace(Key(call->step, call->ticket, m), MicroBatchTask{call, m});
    if (call->sum) {
      guessed_step_ = NextStep(call->step);
      guessed_share_ = micro_batches;
    }
  }
  has_task_.notify_all();
  ReadAhead();
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
  ReadChunksAhead();
}

void TaskQueue::DropChunks() {
  std::lock_guard lock(mutex_);
  chunks_.clear();
  chunk_count_ = 0;
}

void TaskQueue::Abandon(const std::function<bool(const ComputeCall&)>& is_abandoned) {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(micro_batches_,
                  [&](const auto& entry) { return is_abandoned(*entry.second.call); });
    for (const std::weak_ptr<ComputeCall>& running : running_) {
      if (auto call = running.lock(); call != nullptr && is_abandoned(*call))
        call->is_abandoned = true;
    }
  }
  parameters_.Wake();
}

void TaskQueue::Stop() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_task_.notify_all();
  parameters_.Wake();
}

// ---- the computing threads ----------------------------------------------------------------------

std::optional<ComputeTask> TaskQueue::Take() {
  std::unique_lock lock(mutex_);
  has_task_.wait(lock, [&] { return is_stopping_ || !chunks_.empty() || !micro_batches_.empty(); });
  if (is_stopping_) return std::nullopt;
  if (!chunks_.empty()) {  // first, because servers keep a version for it (P31)
    ComputeTask task = std::move(chunks_.front());
    chunks_.pop_front();
    chunk_count_ = chunks_.size();
    return task;
  }
  return std::move(micro_batches_.extract(micro_batches_.begin()).mapped());
}

std::optional<std::pair<Step, MicroBatch>> TaskQueue::Next() {
  std::lock_guard lock(mutex_);
  if (!micro_batches_.empty()) {
    const MicroBatchTask& task = micro_batches_.begin()->second;
    return std::pair(task.call->step, task.micro_batch);
  }
  if (guessed_share_.empty()) return std::nullopt;
  return std::pair(guessed_step_, guessed_share_.front());
}

std::shared_ptr<const Batch> TaskQueue::NextBatch() {
  const auto next = Next();
  return next ? batches_.Peek(next->first, next->second) : nullptr;
}

void TaskQueue::GiveBack(const MicroBatchTask& task) {
  const ComputeCall& call = *task.call;
  std::lock_guard lock(mutex_);
  if (call.is_abandoned) return;  // set under the same lock
  micro_batches_.emplace(Key(call.step, call.ticket, task.micro_batch), task);
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

// After the queued micro-batches comes the same share of the next step, which is pushed only when
// this step is done.
void TaskQueue::ReadAhead() {
  std::vector<std::pair<Step, MicroBatch>> hints;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, task] : micro_batches_) {
      if (hints.size() == read_ahead_max_) break;
      hints.emplace_back(task.call->step, task.micro_batch);
    }
    const bool has_next = guessed_step_.value() < step_count_;
    for (MicroBatch m : has_next ? guessed_share_ : std::vector<MicroBatch>()) {
      if (hints.size() == read_ahead_max_) break;
      hints.emplace_back(guessed_step_, m);
    }
  }
  for (const auto& [step, m] : hints) batches_.Expect(step, m);
}

void TaskQueue::ReadChunksAhead() {
  std::vector<std::pair<uint64_t, uint64_t>> hints;
  {
    std::lock_guard lock(mutex_);
    const size_t count = std::min(chunks_.size(), read_ahead_max_);
    for (size_t i = 0; i < count; ++i)
      hints.push_back(chunks_[i].evaluation->SamplesOfChunk(chunks_[i].chunk));
  }
  for (const auto& [first, last] : hints) batches_.ExpectTest(first, last);
}

}  // namespace pando
