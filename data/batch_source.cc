#include "data/batch_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "common/system.h"
#include "data/permutation.h"

namespace pando {

BatchSource::BatchSource(const DataSet& data_set, const StepPlan& plan, uint64_t seed,
                         uint32_t prefetch_max, uint32_t thread_count, Finish finish)
    : data_set_(data_set),
      plan_(plan),
      seed_(seed),
      prefetch_max_(prefetch_max),
      finish_(std::move(finish)),
      shelf_(std::make_shared<Shelf>()) {
  if (prefetch_max == 0) return;
  for (uint32_t i = 0; i < thread_count; ++i) threads_.emplace_back([this] { PrefetchLoop(); });
}

BatchSource::~BatchSource() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

BatchSource::Name BatchSource::TrainingName(Step step, MicroBatch m) const {
  const SampleRange samples = plan_.Samples(step, m);
  return {Split::kTrain, plan_.Epoch(step), samples.first, samples.last};
}

void BatchSource::Expect(Step step, MicroBatch m) { Expect(TrainingName(step, m)); }

void BatchSource::ExpectTest(uint64_t first, uint64_t last) {
  Expect({.first = first, .last = last});
}

void BatchSource::Expect(const Name& name) {
  if (prefetch_max_ == 0 || name.first == name.last) return;
  {
    std::lock_guard lock(mutex_);
    if (Find(name) != entries_.end()) return;
    const auto is_of_split = [&](const Entry& e) { return e.name.split == name.split; };
    if (static_cast<size_t>(std::ranges::count_if(entries_, is_of_split)) >= prefetch_max_) {
      // Hints are taken roughly in their order, so a hint is taken within prefetch_max takes or
      // never.
      const auto oldest = std::ranges::find_if(entries_, is_of_split);
      const bool may_be_taken = TakeCount(name) - oldest->hinted_at_take <= prefetch_max_;
      if (oldest->is_reading || may_be_taken) return;
      entries_.erase(oldest);
    }
    entries_.push_back({.name = name, .hinted_at_take = TakeCount(name), .result = {}});
  }
  changed_.notify_all();
}

Result<std::shared_ptr<const Batch>> BatchSource::Take(Step step, MicroBatch m) {
  return Take(TrainingName(step, m));
}

Result<std::shared_ptr<const Batch>> BatchSource::TakeTest(uint64_t first, uint64_t last) {
  return Take({.first = first, .last = last});
}

std::shared_ptr<const Batch> BatchSource::Peek(Step step, MicroBatch m) {
  std::lock_guard lock(mutex_);
  const auto entry = Find(TrainingName(step, m));
  if (entry == entries_.end() || !entry->result || !entry->result->ok()) return nullptr;
  return **entry->result;
}

// If a thread is reading the batch, waits for it. A batch that no thread has begun is read here.
BatchSource::BatchResult BatchSource::Take(const Name& name) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  ++TakeCount(name);
  auto entry = Find(name);
  const bool is_ready = entry != entries_.end() && entry->result;
  for (; entry != entries_.end() && entry->is_reading; entry = Find(name)) changed_.wait(lock);
  std::optional<BatchResult> result;
  if (entry != entries_.end()) {
    result = std::move(entry->result);
    entries_.erase(entry);
  }
  lock.unlock();
  if (is_ready) return *std::move(result);
  if (!result) result = ReadNow(name);
  const std::chrono::nanoseconds stalled = std::chrono::steady_clock::now() - start;
  if (name.split == Split::kTrain) stalled_ns_ += stalled.count();
  return *std::move(result);
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
  TakeBatchTimeSlices();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || FindUnread() != entries_.end(); });
    if (stopping_) return;
    auto entry = FindUnread();
    entry->is_reading = true;
    const Name name = entry->name;
    lock.unlock();
    BatchResult result = ReadNow(name);
    lock.lock();
    entry = Find(name);  // it still exists, but entries before it may be gone
    entry->result = std::move(result);
    entry->is_reading = false;
    changed_.notify_all();
  }
}

std::deque<BatchSource::Entry>::iterator BatchSource::Find(const Name& name) {
  return std::ranges::find(entries_, name, &Entry::name);
}

std::deque<BatchSource::Entry>::iterator BatchSource::FindUnread() {
  return std::ranges::find_if(entries_, [](const Entry& e) { return !e.result && !e.is_reading; });
}

BatchSource::BatchResult BatchSource::ReadNow(const Name& name) const {
  std::shared_ptr<Batch> batch = NewBatch();
  const Status s = name.split == Split::kTrain
                       ? ReadTraining(name, batch.get())
                       : ReadTestSamples(data_set_, name.first, name.last, batch.get());
  if (!s.ok()) return s;
  return BatchResult(std::shared_ptr<const Batch>(std::move(batch)));
}

Status BatchSource::ReadTraining(const Name& name, Batch* batch) const {
  PANDO_CHECK(name.first < name.last);
  const Permutation shuffle(data_set_.sample_count(Split::kTrain), seed_, name.epoch);
  std::vector<uint64_t> indices;
  indices.reserve(name.last - name.first);
  for (uint64_t i = name.first; i < name.last; ++i) indices.push_back(shuffle.At(i));
  Status read = data_set_.ReadAugmented(name.epoch, indices, batch);
  if (read.ok() && finish_) finish_(batch);
  return read;
}

// When the last user of a batch releases it, on any thread, the batch goes back to the shelf.
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

Status ReadTestSamples(const DataSet& data_set, uint64_t first, uint64_t last, Batch* batch) {
  const uint64_t count = data_set.sample_count(Split::kTest);
  if (first > last || last > count) {
    return InvalidArgument(fmt::format("test samples [{}, {}) requested, but the data set has {}",
                                       first, last, count));
  }
  std::vector<uint64_t> indices(last - first);
  std::iota(indices.begin(), indices.end(), first);
  return data_set.Read(Split::kTest, indices, batch);
}

}  // namespace pando
