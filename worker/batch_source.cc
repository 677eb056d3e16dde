#include "worker/batch_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "common/permutation.h"

namespace pando {

BatchSource::BatchSource(const DataSet& data_set, const StepPlan& plan, uint64_t seed,
                         uint32_t prefetch_max)
    : data_set_(data_set),
      plan_(plan),
      seed_(seed),
      prefetch_max_(prefetch_max),
      shelf_(std::make_shared<Shelf>()) {
  if (prefetch_max > 0) thread_ = std::thread([this] { PrefetchLoop(); });
}

BatchSource::~BatchSource() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BatchSource::Expect(Step step, MicroBatch m) {
  if (prefetch_max_ == 0 || plan_.Samples(step, m).count() == 0) return;
  {
    std::lock_guard lock(mutex_);
    if (Find(step, m) != entries_.end()) return;
    if (entries_.size() >= prefetch_max_) {
      // Hints are taken about in their order, so one is taken within prefetch_max takes or never.
      const Entry& oldest = entries_.front();
      if (oldest.is_reading || take_count_ - oldest.hinted_at_take <= prefetch_max_) return;
      entries_.pop_front();
    }
    entries_.push_back({.step = step, .m = m, .hinted_at_take = take_count_, .result = {}});
  }
  changed_.notify_all();
}

BatchSource::BatchResult BatchSource::Take(Step step, MicroBatch m) {
  {
    std::unique_lock lock(mutex_);
    ++take_count_;
    auto entry = Find(step, m);
    while (entry != entries_.end() && entry->is_reading) {
      changed_.wait(lock);
      entry = Find(step, m);
    }
    if (entry != entries_.end()) {
      std::optional<BatchResult> result = std::move(entry->result);
      entries_.erase(entry);
      if (result) return std::move(*result);
    }
  }
  return ReadNow(step, m);
}

size_t BatchSource::waiting_count() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

size_t BatchSource::batches_made() const {
  std::lock_guard lock(shelf_->mutex);
  return shelf_->made_count;
}

void BatchSource::PrefetchLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || FindUnread() != entries_.end(); });
    if (stopping_) return;
    auto entry = FindUnread();
    entry->is_reading = true;
    const Step step = entry->step;
    const MicroBatch m = entry->m;
    lock.unlock();
    BatchResult result = ReadNow(step, m);
    lock.lock();
    entry = Find(step, m);  // it is still there, but entries before it may be gone
    entry->result = std::move(result);
    entry->is_reading = false;
    changed_.notify_all();
  }
}

std::deque<BatchSource::Entry>::iterator BatchSource::Find(Step step, MicroBatch m) {
  return std::find_if(entries_.begin(), entries_.end(),
                      [&](const Entry& e) { return e.step == step && e.m == m; });
}

std::deque<BatchSource::Entry>::iterator BatchSource::FindUnread() {
  return std::find_if(entries_.begin(), entries_.end(),
                      [](const Entry& e) { return !e.result && !e.is_reading; });
}

BatchSource::BatchResult BatchSource::ReadNow(Step step, MicroBatch m) const {
  const SampleRange range = plan_.Samples(step, m);
  PANDO_CHECK(range.count() > 0);
  const Permutation shuffle(data_set_.sample_count(Split::kTrain), seed_, plan_.Epoch(step));
  std::vector<uint64_t> indices;
  indices.reserve(range.count());
  for (uint64_t i = range.first; i < range.last; ++i) indices.push_back(shuffle.At(i));
  std::shared_ptr<Batch> batch = NewBatch();
  if (Status s = data_set_.Read(Split::kTrain, indices, batch.get()); !s.ok()) return s;
  return BatchResult(std::shared_ptr<const Batch>(std::move(batch)));
}

// A batch goes back to the shelf when its last user lets go of it, on whatever thread.
std::shared_ptr<Batch> BatchSource::NewBatch() const {
  std::unique_ptr<Batch> batch;
  {
    std::lock_guard lock(shelf_->mutex);
    if (shelf_->free.empty()) {
      ++shelf_->made_count;
    } else {
      batch = std::move(shelf_->free.back());
      shelf_->free.pop_back();
    }
  }
  if (batch == nullptr) batch = std::make_unique<Batch>();
  auto give_back = [shelf = shelf_](Batch* b) {
    std::lock_guard lock(shelf->mutex);
    shelf->free.emplace_back(b);
  };
  return std::shared_ptr<Batch>(batch.release(), give_back);
}

Result<Batch> ReadTestSamples(const DataSet& data_set, uint64_t first, uint64_t last) {
  const uint64_t count = data_set.sample_count(Split::kTest);
  if (first > last || last > count) {
    return InvalidArgument(fmt::format("test samples [{}, {}) asked for, but the data set has {}",
                                       first, last, count));
  }
  std::vector<uint64_t> indices(last - first);
  std::iota(indices.begin(), indices.end(), first);
  Batch batch;
  if (Status s = data_set.Read(Split::kTest, indices, &batch); !s.ok()) return s;
  return batch;
}

}  // namespace pando
