#include "data/batch_source.h"

#include <doctest/doctest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "common/philox.h"
#include "data/permutation.h"

namespace pando {
namespace {

// Sample i begins with the value i and has label i % 10. It can fail and hold reads back on
// request.
class FakeData final : public DataSet {
 public:
  explicit FakeData(uint64_t train_count, uint32_t values = 1)
      : train_count_(train_count), values_(values) {}
  SampleShape shape() const override { return {1, 1, values_}; }
  uint32_t class_count() const override { return 10; }
  uint64_t sample_count(Split split) const override {
    return split == Split::kTrain ? train_count_ : 7;
  }
  uint64_t fingerprint() const override { return 0; }
  Status Fill(const Samples& part, size_t place, Batch* batch) const override {
    {
      std::unique_lock lock(mutex_);
      ++read_count_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !held_; });
    }
    if (fails_) return Corrupt("sample 3 is damaged");
    for (uint64_t i : part.indices) {
      if (bad_.contains(i)) return Corrupt("sample " + std::to_string(i) + " is damaged");
      batch->values[place * values_] = static_cast<float>(i);
      batch->labels[place++] = static_cast<int32_t>(i % 10);
    }
    return Status();
  }

  void set_fails(bool fails) { fails_ = fails; }
  void set_bad(std::set<uint64_t> bad) { bad_ = std::move(bad); }
  void Hold(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void WaitForReads(uint64_t count) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return read_count_ >= count; });
  }
  uint64_t read_count() const {
    std::lock_guard lock(mutex_);
    return read_count_;
  }

 private:
  const uint64_t train_count_;
  const uint32_t values_;
  bool fails_ = false;  // these two are set before any thread reads
  std::set<uint64_t> bad_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable changed_;
  mutable uint64_t read_count_ = 0;
  bool held_ = false;
};

constexpr uint64_t kSeed = 42;
constexpr uint64_t kSamples = 103;  // 103 = 6 batches of 16 and one of 7

StepPlan MakePlan() {
  return StepPlan(
      {.sample_count = kSamples, .global_batch = 16, .micro_batch_count = 3, .epoch_count = 4});
}

std::vector<float> Expected(const StepPlan& plan, Step step, MicroBatch m) {
  const Permutation shuffle(kSamples, kSeed, plan.Epoch(step));
  std::vector<float> values;
  for (uint64_t i = plan.Samples(step, m).first; i < plan.Samples(step, m).last; ++i) {
    values.push_back(static_cast<float>(shuffle.At(i)));
  }
  return values;
}

void CheckTake(BatchSource& source, const StepPlan& plan, Step step, MicroBatch m) {
  auto batch = source.Take(step, m);
  REQUIRE(batch.ok());
  CHECK((*batch)->values == Expected(plan, step, m));
  CHECK((*batch)->labels[0] == static_cast<int32_t>((*batch)->values[0]) % 10);
}

TEST_CASE("an epoch's batches hold every sample once, with and without prefetch") {
  const FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  for (uint32_t prefetch_max : {0u, 1u, 4u}) {
    BatchSource source(data, plan, kSeed, prefetch_max);
    std::set<float> seen;
    uint64_t count = 0;
    for (Step step(7); step.value() < 14; step = NextStep(step)) {  // the second epoch
      for (MicroBatch m : plan.Tree(step).PresentLeaves()) {
        source.Expect(step, m);
        source.Expect(NextStep(step), MicroBatch(0));
        auto batch = source.Take(step, m);
        REQUIRE(batch.ok());
        seen.insert((*batch)->values.begin(), (*batch)->values.end());
        count += (*batch)->sample_count();
      }
    }
    CHECK(seen.size() == kSamples);
    CHECK(count == kSamples);
  }
}

TEST_CASE("batches are right for any hints, and waiting ones stay within the bound") {
  constexpr uint32_t kPrefetchMax = 3;
  const FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, kPrefetchMax);
  for (uint32_t round = 0; round < 2000; ++round) {
    const PhiloxBlock dice = Philox4x32({round, 0, 0, 0}, {1, 2});
    for (uint32_t hint = 0; hint < dice[0] % 6; ++hint) {
      source.Expect(Step(dice[1] % 28), MicroBatch((dice[2] + hint) % 3));
    }
    CHECK(source.waiting_count() <= kPrefetchMax);
    CheckTake(source, plan, Step((dice[1] + dice[3] % 2) % 28), MicroBatch(dice[2] % 3));
  }
  // Those waiting, the one being read, the one taken here and one between two hands.
  CHECK(source.batches_made() <= kPrefetchMax + 3);
}

TEST_CASE("a batch that was looked at waits for its taker") {
  const FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, 2);
  CHECK(source.Peek(Step(0), MicroBatch(0)) == nullptr);
  source.Expect(Step(0), MicroBatch(0));
  std::shared_ptr<const Batch> seen;
  while (seen == nullptr) seen = source.Peek(Step(0), MicroBatch(0));
  CHECK(source.Peek(Step(0), MicroBatch(1)) == nullptr);
  CHECK(source.waiting_count() == 1);
  CHECK(*source.Take(Step(0), MicroBatch(0)) == seen);
  CHECK(source.Peek(Step(0), MicroBatch(0)) == nullptr);
}

TEST_CASE("the reading thread finishes training batches but not test samples") {
  const FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  for (uint32_t prefetch_max : {0u, 2u}) {
    BatchSource source(data, plan, kSeed, prefetch_max, 1,
                       [](Batch* batch) { batch->values[0] = -1; });
    source.Expect(Step(0), MicroBatch(0));
    CHECK((*source.Take(Step(0), MicroBatch(0)))->values[0] == -1);
    CHECK((*source.TakeTest(0, 1))->values[0] != -1);
  }
}

TEST_CASE("a batch read ahead is not read again") {
  const FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, 2);
  source.Expect(Step(0), MicroBatch(0));
  source.Expect(Step(0), MicroBatch(0));
  source.Expect(Step(0), MicroBatch(1));
  data.WaitForReads(2);
  CheckTake(source, plan, Step(0), MicroBatch(0));
  CheckTake(source, plan, Step(0), MicroBatch(1));
  CHECK(data.read_count() == 2);
  CHECK(source.waiting_count() == 0);
  const auto stalled = source.stalled();            // the second may have been on its way still
  CheckTake(source, plan, Step(0), MicroBatch(1));  // taken again: read again
  CHECK(data.read_count() == 3);
  CHECK(source.stalled() > stalled);
}

TEST_CASE("a wait for samples is seen while it lasts") {
  FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, 0);
  CHECK(source.waiting() == std::chrono::nanoseconds(0));
  data.Hold(true);
  std::thread reader([&] { CHECK(source.Take(Step(0), MicroBatch(0)).ok()); });
  data.WaitForReads(1);
  const auto first = source.waiting();
  CHECK(first > std::chrono::nanoseconds(0));
  CHECK(source.waiting() > first);
  data.Hold(false);
  reader.join();
  CHECK(source.waiting() == std::chrono::nanoseconds(0));
}

TEST_CASE("several threads read ahead, and each batch once") {
  constexpr uint32_t kPrefetchMax = 6;
  FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, kPrefetchMax, /*thread_count=*/3);
  data.Hold(true);
  for (uint32_t i = 0; i < kPrefetchMax; ++i) source.Expect(Step(i / 3), MicroBatch(i % 3));
  data.WaitForReads(3);  // three at once
  data.Hold(false);
  data.WaitForReads(kPrefetchMax);
  for (uint32_t i = 0; i < kPrefetchMax; ++i)
    CheckTake(source, plan, Step(i / 3), MicroBatch(i % 3));
  CHECK(data.read_count() == kPrefetchMax);
}

// So large that each sample is a separate part.
constexpr uint32_t kLargeValues = 64 << 10;

void CheckLargeTake(BatchSource& source, const StepPlan& plan, Step step, MicroBatch m) {
  auto batch = source.Take(step, m);
  REQUIRE(batch.ok());
  const std::vector<float> expected = Expected(plan, step, m);
  REQUIRE((*batch)->sample_count() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK((*batch)->values[i * kLargeValues] == expected[i]);
    CHECK((*batch)->labels[i] == static_cast<int32_t>(expected[i]) % 10);
  }
}

TEST_CASE("all threads read the batch that is needed next, and each sample once") {
  FakeData data(kSamples, kLargeValues);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, /*prefetch_max=*/2, /*thread_count=*/3);
  data.Hold(true);
  source.Expect(Step(0), MicroBatch(0));
  data.WaitForReads(3);  // three samples at once
  data.Hold(false);
  CheckLargeTake(source, plan, Step(0), MicroBatch(0));
  CHECK(data.read_count() == Expected(plan, Step(0), MicroBatch(0)).size());
}

TEST_CASE("threads join a taker whose batch has not been begun") {
  FakeData data(kSamples, kLargeValues);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, /*prefetch_max=*/1, /*thread_count=*/2);
  data.Hold(true);
  std::thread taker([&] { CheckLargeTake(source, plan, Step(5), MicroBatch(2)); });
  data.WaitForReads(3);  // the taker and both threads
  data.Hold(false);
  taker.join();
}

TEST_CASE("an awaited batch is read before older hints") {
  FakeData data(kSamples, kLargeValues);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, /*prefetch_max=*/3, /*thread_count=*/1);
  data.Hold(true);
  source.Expect(Step(0), MicroBatch(0));
  data.WaitForReads(1);
  source.Expect(Step(0), MicroBatch(1));
  source.Expect(Step(0), MicroBatch(2));
  std::thread taker([&] { CheckLargeTake(source, plan, Step(0), MicroBatch(2)); });
  data.WaitForReads(2);  // the taker reads itself, since the only thread is held back
  data.Hold(false);
  taker.join();
  CheckLargeTake(source, plan, Step(0), MicroBatch(0));
  CheckLargeTake(source, plan, Step(0), MicroBatch(1));
}

TEST_CASE("batches are the same for any number of threads") {
  const StepPlan plan = MakePlan();
  for (const uint32_t thread_count : {1u, 2u, 4u}) {
    FakeData data(kSamples, kLargeValues);
    BatchSource source(data, plan, kSeed, /*prefetch_max=*/4, thread_count);
    for (Step step(0); step < Step(7); step = NextStep(step)) {
      for (const MicroBatch m : plan.Tree(step).PresentLeaves()) source.Expect(step, m);
      for (const MicroBatch m : plan.Tree(step).PresentLeaves())
        CheckLargeTake(source, plan, step, m);
    }
  }
}

TEST_CASE("the first damaged sample of a batch is named, not the one that was found first") {
  const StepPlan plan = MakePlan();
  const std::vector<float> samples = Expected(plan, Step(0), MicroBatch(0));
  REQUIRE(samples.size() == 5);
  const auto first = static_cast<uint64_t>(samples[1]);
  for (uint32_t round = 0; round < 50; ++round) {
    FakeData data(kSamples, kLargeValues);
    data.set_bad({first, static_cast<uint64_t>(samples[2]), static_cast<uint64_t>(samples[4])});
    BatchSource source(data, plan, kSeed, /*prefetch_max=*/2, /*thread_count=*/3);
    source.Expect(Step(0), MicroBatch(0));
    const Status status = source.Take(Step(0), MicroBatch(0)).status();
    CHECK(status.message() == "sample " + std::to_string(first) + " is damaged");
  }
}

TEST_CASE("hints never taken make room for new ones once takes have passed them by") {
  constexpr uint32_t kPrefetchMax = 2;
  const FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, kPrefetchMax);
  source.Expect(Step(20), MicroBatch(0));  // a rollback: these are never taken
  source.Expect(Step(20), MicroBatch(1));
  data.WaitForReads(2);
  source.Expect(Step(1), MicroBatch(0));  // full: ignored
  for (uint32_t taken = 0; taken <= kPrefetchMax; ++taken) {
    CheckTake(source, plan, Step(0), MicroBatch(taken));
  }
  CHECK(data.read_count() == 5);
  while (data.read_count() < 7) {  // the older hints go one by one
    source.Expect(Step(1), MicroBatch(0));
    source.Expect(Step(1), MicroBatch(1));
    std::this_thread::yield();
  }
  CHECK(source.waiting_count() == kPrefetchMax);
  CheckTake(source, plan, Step(1), MicroBatch(0));
  CheckTake(source, plan, Step(1), MicroBatch(1));
  CHECK(data.read_count() == 7);
}

TEST_CASE("a hint for an absent micro-batch is ignored") {
  const FakeData data(kSamples);
  StepPlan plan({.sample_count = 18, .global_batch = 16, .micro_batch_count = 3, .epoch_count = 1});
  BatchSource source(data, plan, kSeed, 2);
  REQUIRE_FALSE(plan.Tree(Step(1)).IsPresent(MicroBatch(0)));
  source.Expect(Step(1), MicroBatch(0));
  CHECK(source.waiting_count() == 0);
}

TEST_CASE("a taker waits for its batch when it is being read") {
  FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, 2);
  data.Hold(true);
  source.Expect(Step(2), MicroBatch(1));
  data.WaitForReads(1);
  std::thread taker([&] { CheckTake(source, plan, Step(2), MicroBatch(1)); });
  data.Hold(false);
  taker.join();
  CHECK(data.read_count() == 1);
}

TEST_CASE("a failed read is an error, whether read ahead or at once") {
  FakeData data(kSamples);
  data.set_fails(true);
  BatchSource source(data, MakePlan(), kSeed, 2);
  source.Expect(Step(0), MicroBatch(0));
  data.WaitForReads(1);
  for (uint32_t m : {0u, 1u}) {
    auto batch = source.Take(Step(0), MicroBatch(m));
    CHECK(batch.status().code() == StatusCode::kCorrupt);
    CHECK(batch.status().message() == "sample 3 is damaged");
  }
}

TEST_CASE("several threads take batches side by side") {
  const FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, 4);
  std::vector<std::vector<float>> got(3 * 28);
  auto take_all_of = [&](uint32_t m) {
    for (Step step(0); step < Step(28); step = NextStep(step)) {
      if (!plan.Tree(step).IsPresent(MicroBatch(m))) continue;
      source.Expect(NextStep(step), MicroBatch(m));
      auto batch = source.Take(step, MicroBatch(m));
      if (batch.ok()) got[step.value() * 3 + m] = (*batch)->values;
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t m = 0; m < 3; ++m) threads.emplace_back(take_all_of, m);
  for (std::thread& thread : threads) thread.join();
  for (uint32_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == Expected(plan, Step(i / 3), MicroBatch(i % 3)));
  }
}

TEST_CASE("a batch outlives its source") {
  const FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  auto source = std::make_unique<BatchSource>(data, plan, kSeed, 2);
  auto batch = source->Take(Step(3), MicroBatch(2));
  source->Expect(Step(4), MicroBatch(0));
  source.reset();
  REQUIRE(batch.ok());
  CHECK((*batch)->values == Expected(plan, Step(3), MicroBatch(2)));
}

TEST_CASE("test samples come in order, and a range beyond the split is an error") {
  const FakeData data(kSamples);
  Batch slice;
  REQUIRE(ReadTestSamples(data, 2, 5, &slice).ok());
  CHECK(slice.values == std::vector<float>{2, 3, 4});
  REQUIRE(ReadTestSamples(data, 7, 7, &slice).ok());
  CHECK(slice.sample_count() == 0);
  for (auto [first, last] : {std::pair<uint64_t, uint64_t>{0, 8}, {5, 4}}) {
    const Status status = ReadTestSamples(data, first, last, &slice);
    CHECK(status.code() == StatusCode::kInvalidArgument);
  }
}

TEST_CASE("test samples are read ahead beside training batches, and count as no stall of those") {
  const FakeData data(kSamples);
  const StepPlan plan = MakePlan();
  BatchSource source(data, plan, kSeed, 2);
  for (uint32_t m : {0u, 1u}) source.Expect(Step(0), MicroBatch(m));
  for (uint64_t first : {0u, 2u, 4u}) source.ExpectTest(first, first + 2);  // the third is one more
  CHECK(source.waiting_count() == 4);
  for (uint64_t first : {0u, 2u, 4u}) {
    auto batch = source.TakeTest(first, first + 2);
    REQUIRE(batch.ok());
    CHECK((*batch)->values == std::vector<float>{float(first), float(first + 1)});
  }
  CHECK(source.stalled() == std::chrono::nanoseconds(0));
  auto batch = source.Take(Step(0), MicroBatch(1));
  REQUIRE(batch.ok());
  CHECK((*batch)->values == Expected(plan, Step(0), MicroBatch(1)));
  CHECK(source.TakeTest(0, 8).status().code() == StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pando
