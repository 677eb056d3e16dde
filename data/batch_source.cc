#include "data/batch_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "common/system.h"
#include "data/permutation.h"

namespace pando {
namespace {

constexpr size_t kPartsPerThread = 4;  // per batch: threads that are done early take one more
constexpr size_t kPartBytesMin = 64 << 10;

Status CheckTestSamples(const DataSet& data_set, uint64_t first, uint64_t last) {
  const uint64_t count = data_set.sample_count(Split::kTest);
  if (first <= last && last <= count) return Status();
  return InvalidArgument(
      fmt::format("test samples [{}, {}) requested, but the data set has {}", first, last, count));
}

}  // namespace

BatchSource::BatchSource(const DataSet& data_set, const StepPlan& plan, uint64_t seed,
                         uint32_t prefetch_max, uint32_t thread_count, Finish finish)
    : data_set_(data_set),
      plan_(plan),
      seed_(seed),
      prefetch_max_(prefetch_max),
      thread_count_(prefetch_max == 0 ? 0 : thread_count),
      finish_(std::move(finish)),
      shelf_(std::make_shared<Shelf>()) {
  for (size_t i = 0; i < thread_count_; ++i) threads_.emplace_back([this] { PrefetchLoop(); });
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
      if (may_be_taken) return;
      entries_.erase(oldest);
    }
    entries_.push_back({.name = name, .hinted_at_take = TakeCount(name), .reading = nullptr});
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
  if (entry == entries_.end() || entry->reading == nullptr) return nullptr;
  const Reading& reading = *entry->reading;
  return reading.is_done && reading.error.ok() ? reading.batch : nullptr;
}

// If a thread has begun the batch, waits for it. Otherwise begins it here, and the source's threads
// join in.
BatchSource::BatchResult BatchSource::Take(const Name& name) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  ++TakeCount(name);
  std::shared_ptr<Reading> reading;
  if (const auto entry = Find(name); entry != entries_.end()) {
    reading = std::move(entry->reading);
    entries_.erase(entry);
  }
  if (reading != nullptr && reading->is_done) return reading->result();
  const bool is_begun_here = reading == nullptr;
  if (is_begun_here) reading = std::make_shared<Reading>(name);
  awaited_.push_back(reading);
  const auto wait = waits_.insert(start);
  while (!reading->is_done) {
    if (is_begun_here && reading->has_unclaimed()) {
      WorkOn(*reading, lock);
    } else {
      changed_.wait(lock);
    }
  }
  std::erase(awaited_, reading);
  waits_.erase(wait);
  const std::chrono::nanoseconds stalled = std::chrono::steady_clock::now() - start;
  if (name.split == Split::kTrain) stalled_ns_ += stalled.count();
  return reading->result();
}

std::chrono::nanoseconds BatchSource::waiting() const {
  std::lock_guard lock(mutex_);
  if (waits_.empty()) return std::chrono::nanoseconds(0);
  return std::chrono::steady_clock::now() - *waits_.begin();
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
    std::shared_ptr<Reading> reading;
    changed_.wait(lock, [&] { return stopping_ || (reading = NextReading()) != nullptr; });
    if (stopping_) return;
    WorkOn(*reading, lock);
  }
}

std::deque<BatchSource::Entry>::iterator BatchSource::Find(const Name& name) {
  return std::ranges::find(entries_, name, &Entry::name);
}

// While another thread prepares a batch, a thread waits for its parts instead of going on to the
// next batch, which is needed later.
std::shared_ptr<BatchSource::Reading> BatchSource::NextReading() {
  const auto is_next = [](const Reading& r) {
    return !r.is_done && (r.part_count == 0 || r.has_unclaimed());
  };
  const auto or_none_yet = [](const std::shared_ptr<Reading>& r) {
    return r->has_unclaimed() ? r : nullptr;
  };
  for (const std::shared_ptr<Reading>& reading : awaited_) {
    if (is_next(*reading)) return or_none_yet(reading);
  }
  for (Entry& entry : entries_) {
    if (entry.reading == nullptr) entry.reading = std::make_shared<Reading>(entry.name);
    if (is_next(*entry.reading)) return or_none_yet(entry.reading);
  }
  return nullptr;
}

void BatchSource::WorkOn(Reading& reading, std::unique_lock<std::mutex>& lock) {
  if (reading.is_begun) return ReadPart(reading, lock);
  reading.is_begun = true;
  lock.unlock();
  Status begun = Begin(reading);
  lock.lock();
  if (begun.ok()) {
    const size_t samples = reading.indices.size();
    reading.part_count = (samples + reading.part_samples - 1) / reading.part_samples;
  } else {
    reading.error = std::move(begun);
    reading.is_done = true;
  }
  changed_.notify_all();
}

// Threads claim parts in order, so the first one that fails is known once all claimed ones are
// finished.
void BatchSource::ReadPart(Reading& reading, std::unique_lock<std::mutex>& lock) {
  const size_t part = reading.claimed_count++;
  const size_t first = part * reading.part_samples;
  lock.unlock();
  Samples samples = SamplesFor(reading);
  samples.indices = samples.indices.subspan(first);
  if (samples.indices.size() > reading.part_samples)
    samples.indices = samples.indices.first(reading.part_samples);
  Status read = data_set_.Fill(samples, first, reading.batch.get());
  lock.lock();
  if (!read.ok() && (reading.error.ok() || part < reading.failed_part)) {
    reading.failed_part = part;
    reading.error = std::move(read);
    reading.part_count = reading.claimed_count;  // the others are not needed
  }
  if (++reading.finished_count < reading.part_count) return;
  if (reading.error.ok() && reading.name.split == Split::kTrain && finish_) {
    lock.unlock();
    finish_(reading.batch.get());
    lock.lock();
  }
  reading.is_done = true;
  changed_.notify_all();
}

// Makes room for the samples and cuts them into parts: small ones for many threads, but none so
// small that claiming it costs more than reading it.
Status BatchSource::Begin(Reading& reading) const {
  const Name& name = reading.name;
  if (name.split == Split::kTest) {
    PANDO_RETURN_IF_ERROR(CheckTestSamples(data_set_, name.first, name.last));
  }
  PANDO_CHECK(name.first < name.last);
  const size_t count = name.last - name.first;
  reading.indices.resize(count);
  std::iota(reading.indices.begin(), reading.indices.end(), name.first);
  if (name.split == Split::kTrain) {
    const Permutation shuffle(data_set_.sample_count(Split::kTrain), seed_, name.epoch);
    for (uint64_t& index : reading.indices) index = shuffle.At(index);
  }
  reading.batch = NewBatch();
  data_set_.Prepare(SamplesFor(reading), reading.batch.get());
  const size_t parts_max = thread_count_ < 2 ? 1 : kPartsPerThread * thread_count_;
  const size_t samples_min = kPartBytesMin / data_set_.shape().size();
  reading.part_samples = std::max({(count + parts_max - 1) / parts_max, samples_min, size_t{1}});
  return Status();
}

Samples BatchSource::SamplesFor(const Reading& reading) const {
  Samples samples{reading.name.split, reading.indices};
  if (samples.split == Split::kTrain) samples.epoch = reading.name.epoch;
  return samples;
}

BatchSource::BatchResult BatchSource::Reading::result() const {
  if (!error.ok()) return error;
  return std::shared_ptr<const Batch>(batch);
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
  PANDO_RETURN_IF_ERROR(CheckTestSamples(data_set, first, last));
  std::vector<uint64_t> indices(last - first);
  std::iota(indices.begin(), indices.end(), first);
  return data_set.Read({Split::kTest, indices}, batch);
}

}  // namespace pando
