// Shared by the tests of the computing side: a data set of numbers, a small job, and a sink that
// waits for events.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/philox.h"
#include "common/system.h"
#include "data/batch_source.h"
#include "data/dataset.h"
#include "models/network.h"
#include "plan/job_plan.h"
#include "plan/tensor_init.h"
#include "tests/train/micro_batches.h"
#include "tests/train/plain_gradient.h"
#include "train/trainer.h"

namespace pando {

// Pictures of random bytes whose label is the brightest of the first class_count pixels: learnable.
class NoiseSet : public DataSet {
 public:
  NoiseSet(SampleShape shape, uint64_t train_samples, uint64_t test_samples)
      : shape_(shape), counts_{train_samples, test_samples} {}
  SampleShape shape() const override { return shape_; }
  uint32_t class_count() const override { return kClassCount; }
  uint64_t sample_count(Split split) const override { return counts_[split == Split::kTest]; }
  uint64_t fingerprint() const override { return 1; }
  const Normalisation* normalisation() const override { return &normalisation_; }
  Status Fill(const Samples& part, size_t place, Batch* batch) const override {
    for (uint64_t index : part.indices) {
      uint8_t* pixels = batch->bytes.data() + place * shape_.size();
      for (uint32_t i = 0; i < shape_.size(); ++i) {
        const auto word = static_cast<uint32_t>(index);
        const PhiloxBlock block = Philox4x32({word, i, part.split == Split::kTest, 0}, {});
        pixels[i] = static_cast<uint8_t>(block[0]);
      }
      batch->labels[place++] =
          static_cast<int32_t>(std::max_element(pixels, pixels + kClassCount) - pixels);
    }
    return {};
  }

 private:
  static constexpr uint32_t kClassCount = 10;
  const SampleShape shape_;
  const std::array<uint64_t, 2> counts_;
  const Normalisation normalisation_{.mean = {0.5f}, .stddev = {0.3f}};
};

struct TestJob {
  explicit TestJob(const Job& job_in, SampleShape shape = {4, 4, 1}, uint64_t train_samples = 100,
                   uint64_t test_samples = 150)
      : job(job_in), data(shape, train_samples, test_samples) {}

  static Job SmallMlp() {
    Job job;
    job.model = "mlp";
    job.mlp_hidden = {40, 24};
    job.global_batch = 32;
    job.micro_batches = 4;
    job.steps = 8;
    job.optimizer.kind = OptimizerKind::kAdam;
    return job;
  }
  static Job MnistCnn() {
    Job job = SmallMlp();
    job.model = "mnist-cnn";
    return job;
  }
  // Version 0, or something like it for other versions.
  SharedBuffer Parameters(uint64_t version = 0) const {
    auto values = std::make_shared<FloatBuffer>(plan.layout.float_count());
    InitRange(plan.layout, job.seed + version, {0, plan.layout.float_count()}, values->span());
    return values;
  }

  Job job;
  NoiseSet data;
  Model model = *Model::Create(job, data.shape(), data.class_count());
  JobPlan plan{job,
               {.train_samples = data.sample_count(Split::kTrain),
                .test_samples = data.sample_count(Split::kTest),
                .shape = data.shape(),
                .class_count = data.class_count()},
               model.layout()};
};

inline Blob ShardBlob(const JobPlan& plan, const SharedBuffer& values, uint32_t shard) {
  const ShardRange& range = plan.shards.range(ShardId(shard));
  return ToBlob(values, range.first, range.size());
}

// One micro-batch by hand, one network, no threads.
inline std::vector<float> NaiveGradient(const TestJob& test, Step step, MicroBatch m,
                                        const FloatBuffer& parameters) {
  SetFloatEnvironment();
  BatchSource source(test.data, test.plan.steps, test.job.seed, 0);
  auto batch = *source.Take(step, m);
  Network network(test.model, batch->sample_count(), TestDevice());
  network.SetBatch(*batch, {test.job.seed, step, m}, Mode::kTrain);
  return PlainGradient(network, test.plan.layout, parameters.span());
}

// Keeps what a trainer emits; a test waits for what it expects.
class EventLog {
 public:
  Trainer::Sink sink() {
    return [this](ComputeTicket ticket, ComputeEvent event) {
      std::lock_guard lock(mutex_);
      events_.emplace_back(ticket, std::move(event));
      changed_.notify_all();
    };
  }
  // The next event that the session may see.
  ComputeEvent Next(Trainer& trainer) {
    while (true) {
      auto [ticket, event] = Take();
      if (!trainer.IsCurrent(ticket, event)) continue;
      if (std::holds_alternative<GradientHashed>(event)) ++hashed_count;
      if (auto* gradient = std::get_if<GradientReady>(&event)) gradients.push_back(*gradient);
      return std::move(event);
    }
  }
  // The next of this type; others before it are dropped.
  template <class Event>
  Event Await(Trainer& trainer) {
    while (true) {
      const ComputeEvent event = Next(trainer);
      if (auto* expected = std::get_if<Event>(&event)) return *expected;
    }
  }
  std::vector<GradientReady> gradients;  // seen on the way
  size_t hashed_count = 0;

 private:
  std::pair<ComputeTicket, ComputeEvent> Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !events_.empty(); });
    auto next = std::move(events_.front());
    events_.pop_front();
    return next;
  }
  std::mutex mutex_;  // guards events_
  std::condition_variable changed_;
  std::deque<std::pair<ComputeTicket, ComputeEvent>> events_;
};

}  // namespace pando
