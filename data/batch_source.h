// BatchSource gives the trainer the samples of (step, micro-batch) and those of the test split. Its
// threads read announced batches ahead, and share the samples of each batch: all of them read the
// batch that is needed next. The samples are a pure function of the job, so neither reading ahead
// nor the number of threads changes any result.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "common/batch.h"
#include "common/ids.h"
#include "common/result.h"
#include "data/dataset.h"
#include "plan/step_plan.h"

namespace pando {

// Threads: Expect and Take may be called from several at once. The data set must outlive the source
// and every batch; batches may outlive the source.
// Invariant: at most prefetch_max batches of either split wait, even if many hints are never taken.
class BatchSource {
 public:
  // The source calls it with each training batch, on the thread that read the batch's last part.
  using Finish = std::function<void(Batch*)>;
  // `seed` is the job's. With prefetch_max 0 the source reads nothing ahead and starts no thread.
  BatchSource(const DataSet& data_set, const StepPlan& plan, uint64_t seed, uint32_t prefetch_max,
              uint32_t thread_count = 1, Finish finish = {});
  ~BatchSource();  // waits for samples that are being read
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  // Hints that this batch will be needed soon. Never waits for a read. Ignored if prefetch_max
  // batches wait already, unless the oldest was not taken in its turn (another worker got it, or a
  // rollback came); it then makes room. REQUIRES: m < the job's micro-batch count.
  void Expect(Step step, MicroBatch m);

  // Returns the batch that was read ahead. If no thread has begun it, reads it now, on the calling
  // thread and those of the source. A batch may be taken again. If samples cannot be read, the
  // error is that of the first one. REQUIRES: m is present in the step's tree.
  Result<std::shared_ptr<const Batch>> Take(Step step, MicroBatch m);

  // Returns the batch that Take would return at once, or null. The batch still waits for Take.
  std::shared_ptr<const Batch> Peek(Step step, MicroBatch m);

  // Do the same for test samples [first, last). REQUIRES: they exist, and first < last.
  void ExpectTest(uint64_t first, uint64_t last);
  Result<std::shared_ptr<const Batch>> TakeTest(uint64_t first, uint64_t last);

  size_t waiting_count() const;  // hints and batches held now, ≤ 2 prefetch_max
  size_t batches_made() const;   // batches allocated so far, recycled ones counted once
  // The time for which threads have waited for training batches, or read them, so far. Any thread.
  std::chrono::nanoseconds stalled() const { return std::chrono::nanoseconds(stalled_ns_); }
  // The longest time for which a thread has now been waiting for a batch, or reading it; 0 if no
  // thread waits. Any thread.
  std::chrono::nanoseconds waiting() const;

 private:
  using BatchResult = Result<std::shared_ptr<const Batch>>;
  struct Name {  // names a batch
    Split split = Split::kTest;
    uint64_t epoch = 0;  // training: [first, last) are places in its permutation
    uint64_t first = 0;
    uint64_t last = 0;
    bool operator==(const Name&) const = default;
  };
  // Reading is a batch that was begun. Threads claim its parts of some samples each, in order.
  struct Reading {
    explicit Reading(const Name& name_in) : name(name_in) {}
    bool has_unclaimed() const { return !is_begun || claimed_count < part_count; }
    BatchResult result() const;  // once done

    const Name name;
    // These are constant after the thread that begins the batch has written them:
    std::vector<uint64_t> indices;
    std::shared_ptr<Batch> batch;
    size_t part_samples = 0;
    // The source's mutex guards these:
    bool is_begun = false;
    bool is_done = false;
    size_t part_count = 0;  // 0 until the batch has been prepared
    size_t claimed_count = 0;
    size_t finished_count = 0;
    size_t failed_part = 0;  // the first one that failed
    Status error;            // of that part
  };
  struct Entry {
    Name name;
    uint64_t hinted_at_take = 0;       // take count of its split when the hint came
    std::shared_ptr<Reading> reading;  // null: no thread has begun it
  };
  struct Shelf {  // guarded by its mutex: batches to reuse
    std::mutex mutex;
    std::vector<std::unique_ptr<Batch>> free;
    size_t made_count = 0;
  };

  Name TrainingName(Step step, MicroBatch m) const;
  void Expect(const Name& name);
  BatchResult Take(const Name& name);
  void PrefetchLoop();
  std::deque<Entry>::iterator Find(const Name& name);
  std::shared_ptr<Reading> NextReading();
  uint64_t& TakeCount(const Name& name) { return take_counts_[name.split == Split::kTest]; }
  // These two release the lock while they work.
  void WorkOn(Reading& reading, std::unique_lock<std::mutex>& lock);
  void ReadPart(Reading& reading, std::unique_lock<std::mutex>& lock);
  Status Begin(Reading& reading) const;
  Samples SamplesFor(const Reading& reading) const;
  std::shared_ptr<Batch> NewBatch() const;

  const DataSet& data_set_;
  const StepPlan plan_;
  const uint64_t seed_;
  const size_t prefetch_max_;
  const size_t thread_count_;
  const Finish finish_;
  const std::shared_ptr<Shelf> shelf_;

  mutable std::mutex mutex_;  // guards the members up to stopping_
  std::condition_variable changed_;
  // Batches that a thread waits for; they are read before all others.
  std::vector<std::shared_ptr<Reading>> awaited_;
  std::multiset<std::chrono::steady_clock::time_point> waits_;  // when each wait began
  std::deque<Entry> entries_;                                   // in the order of the hints
  uint64_t take_counts_[2] = {0, 0};                            // by split
  bool stopping_ = false;
  std::atomic<int64_t> stalled_ns_ = 0;
  std::vector<std::thread> threads_;
};

// Reads samples [first, last) of the test split, in order.
Status ReadTestSamples(const DataSet& data_set, uint64_t first, uint64_t last, Batch* batch);

}  // namespace pando
