// BatchSource hands the trainer the samples of (step, micro-batch), read ahead on a thread of its
// own where the trainer said what it will want. Which samples those are is a pure function of the
// job, so what was read ahead, and whether, changes no result.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/batch.h"
#include "common/ids.h"
#include "common/status.h"
#include "common/step_plan.h"
#include "worker/dataset.h"

namespace pando {

// Threads: Expect and Take may be called from several at once. The data set must outlive the source
// and every batch; batches may outlive the source.
// Invariant: at most prefetch_max batches wait, however many hints are given and never taken up.
class BatchSource {
 public:
  // `seed` is the job's. prefetch_max: 0 reads nothing ahead and starts no thread.
  BatchSource(const DataSet& data_set, const StepPlan& plan, uint64_t seed, uint32_t prefetch_max);
  ~BatchSource();  // waits for a read that has begun
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  // A hint: this batch will be asked for soon. Never waits for a read. Ignored when prefetch_max
  // batches wait already, unless the oldest of them was passed by (a micro-batch given to another
  // worker, a rollback): that one makes room. REQUIRES: m < the job's micro-batch count.
  void Expect(Step step, MicroBatch m);

  // The batch: the one read ahead, or read now on the calling thread. The same batch may be taken
  // again. REQUIRES: m is present in the step's tree.
  Result<std::shared_ptr<const Batch>> Take(Step step, MicroBatch m);

  size_t waiting_count() const;  // hints and batches held at the moment, ≤ prefetch_max
  size_t batches_made() const;   // batches allocated so far, recycled ones counted once

 private:
  using BatchResult = Result<std::shared_ptr<const Batch>>;
  struct Entry {
    Step step;
    MicroBatch m;
    uint64_t hinted_at_take = 0;        // take_count_ when the hint came
    bool is_reading = false;            // the thread is at it: only the thread may remove it
    std::optional<BatchResult> result;  // set once read
  };
  struct Shelf {  // guarded by its mutex: batches to use again
    std::mutex mutex;
    std::vector<std::unique_ptr<Batch>> free;
    size_t made_count = 0;
  };

  void PrefetchLoop();
  std::deque<Entry>::iterator Find(Step step, MicroBatch m);
  std::deque<Entry>::iterator FindUnread();
  BatchResult ReadNow(Step step, MicroBatch m) const;
  std::shared_ptr<Batch> NewBatch() const;

  const DataSet& data_set_;
  const StepPlan plan_;
  const uint64_t seed_;
  const size_t prefetch_max_;
  const std::shared_ptr<Shelf> shelf_;

  mutable std::mutex mutex_;  // guards all that follows but the thread
  std::condition_variable changed_;
  std::deque<Entry> entries_;  // in the order of the hints
  uint64_t take_count_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

// Samples [first, last) of the test split, in order: what one worker evaluates.
Result<Batch> ReadTestSamples(const DataSet& data_set, uint64_t first, uint64_t last);

}  // namespace pando
