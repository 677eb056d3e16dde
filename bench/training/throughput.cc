#include "bench/training/throughput.h"

#include <algorithm>

#include "bench/training/line_tail.h"

namespace pando::bench {
namespace {

// A look costs some microseconds; what is measured lasts seconds.
constexpr std::chrono::milliseconds kLookInterval{20};

// The rows of one run so far, and where its window is in them.
struct Reader {
  explicit Reader(const std::string& run_dir) : tail(run_dir + "/metrics.csv") {}
  Status Read() {
    for (const std::string& line : tail.Take()) {
      if (Status s = rows.Add(line); !s.ok()) return s;
    }
    return Status();
  }
  size_t count() const { return rows.rows().size(); }

  LineTail tail;
  StepRows rows;
  size_t first = 0;  // the row before the window
};

// Once all of them have so many rows behind `first`.
Status AwaitRows(TrainingRuns& runs, std::vector<Reader>& readers, uint64_t more,
                 TrainingRuns::Clock::time_point not_before) {
  return runs.Await(
      [&]() -> Result<bool> {
        for (Reader& reader : readers) {
          if (Status s = reader.Read(); !s.ok()) return s;
        }
        return TrainingRuns::Clock::now() >= not_before &&
               std::ranges::all_of(readers,
                                   [&](const Reader& r) { return r.count() > r.first + more; });
      },
      kLookInterval);
}

}  // namespace

Result<Throughput> MeasureThroughput(TrainingRuns& runs, const std::vector<TrainPlan>& plans,
                                     const Window& window) {
  std::vector<Reader> readers;
  for (const TrainPlan& plan : plans) {
    if (Status s = runs.Start(plan); !s.ok()) return s;
    readers.emplace_back(runs.RunDir(runs.count() - 1));
  }
  const auto now = TrainingRuns::Clock::now;
  if (Status s = AwaitRows(runs, readers, window.warm_up_steps, now()); !s.ok()) return s;
  for (Reader& reader : readers) reader.first = reader.count() - 1;
  const auto length = std::chrono::duration_cast<TrainingRuns::Clock::duration>(
      std::chrono::duration<double>(window.seconds));
  if (Status s = AwaitRows(runs, readers, window.steps_min, now() + length); !s.ok()) return s;
  runs.Stop();
  Throughput sum;
  for (size_t i = 0; i < plans.size(); ++i) {
    const Pace pace = PaceBetween(readers[i].rows.rows(), readers[i].first, readers[i].count() - 1);
    sum.images_per_s += pace.steps_per_s() * plans[i].global_batch;
    sum.exposed_sync_ms += pace.exposed_sync_ms / static_cast<double>(plans.size());
  }
  return sum;
}

}  // namespace pando::bench
