// JobPlan has all values that follow from a job and its data set and that all processes must agree
// on. Each process builds it once and gives it to the protocol cores. It is immutable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/batch.h"
#include "common/float_buffer.h"
#include "common/philox.h"
#include "plan/job.h"
#include "plan/payload_plan.h"
#include "plan/shard_plan.h"
#include "plan/step_plan.h"
#include "plan/tensor_layout.h"

namespace pando {

// Preprocessing makes a stored sample a network's input: value = (stored − mean) / deviation, per
// channel of a picture (stored: byte / 255) or per input of a table. These are the run's numbers; a
// float has the value of its shortest decimal text.
struct Preprocessing {
  std::vector<double> mean;
  std::vector<double> deviation;
  std::vector<std::string> columns;  // for a table, one per input; empty for pictures
  std::vector<std::string> class_names;
};

// DataFacts are the scheduler's facts about the data set. Every joiner compares them with its own.
struct DataFacts {
  uint64_t train_samples = 1;
  uint64_t test_samples = 0;
  SampleShape shape;
  uint32_t class_count = 1;
  uint64_t fingerprint = 0;          // P38
  Preprocessing preprocessing = {};  // set if the data set is open; not sent
};

// The test set is evaluated in slices of this many samples (P31). The loss is the sum of the
// slices' sums in order, so its bits do not depend on the number of workers or on their slices.
inline constexpr uint64_t kEvaluationSliceSamples = 1024;

struct JobPlan {
  JobPlan(const Job& job_in, const DataFacts& data_in, TensorLayout layout_in)
      : job(job_in),
        data(data_in),
        layout(std::move(layout_in)),
        shards(layout, {.servers_max = ServersMax(job)}),
        pushes({job.push_codec, job.top_k_share}, layout, shards),
        pulls({job.pull_codec}, layout, shards),
        steps({.sample_count = data_in.train_samples,
               .global_batch = job_in.global_batch,
               .micro_batch_count = job_in.micro_batches,
               .last_batch = job_in.last_batch,
               .step_count = job_in.steps,
               .epoch_count = job_in.epochs,
               .staleness = job_in.staleness}) {}

  // Returns the steps between evaluations; 0: only at the end.
  uint64_t EvaluationInterval() const {
    if (job.eval_every_steps != 0) return job.eval_every_steps;
    return job.eval_every_epochs * steps.steps_per_epoch();
  }
  // Returns the samples of an evaluation's slices; the last one may have fewer.
  uint64_t EvaluationSliceSamples() const {
    return job.eval_whole ? std::max<uint64_t>(1, data.test_samples) : kEvaluationSliceSamples;
  }
  // Returns whether this version is due for evaluation, and so pinned (P31): by the interval in
  // steps or epochs, or as the job's last version.
  bool IsEvaluationDue(Version version) const {
    if (version == steps.final_version()) return true;
    const uint64_t every = EvaluationInterval();
    return every != 0 && version.value() != 0 && version.value() % every == 0;
  }
  // Returns the first version after this one that is due; at most the final version.
  Version NextEvaluation(Version after) const {
    const uint64_t every = EvaluationInterval();
    if (every == 0) return steps.final_version();
    return std::min(Version((after.value() / every + 1) * every), steps.final_version());
  }
  // Returns whether the run may end with this version: the last one, or one that an early stop may
  // choose (P32).
  bool MayBeFinal(Version version) const {
    if (version == steps.final_version()) return true;
    return job.may_stop_early() && IsEvaluationDue(version);
  }
  // Returns whether every shard stores this version (P29). All processes know version 0.
  bool IsSnapshotDue(Version version) const {
    if (MayBeFinal(version)) return true;
    if (job.snapshot_best && IsEvaluationDue(version)) return true;
    return job.snapshot_every != 0 && version.value() != 0 &&
           version.value() % job.snapshot_every == 0;
  }
  // Returns whether two workers compute this micro-batch (P41), equally in every run of the job.
  bool IsVerified(Step step, MicroBatch m) const {
    if (job.verify_every == 0) return false;
    const auto low = static_cast<uint32_t>(step.value());
    const auto high = static_cast<uint32_t>(step.value() >> 32);
    const PhiloxBlock block =
        Philox4x32({low, high, m.value(), 0}, MakePhiloxKey(job.seed, RandomPurpose::kVerify));
    return (uint64_t{block[1]} << 32 | block[0]) % job.verify_every == 0;
  }
  // The form of the parameters with which workers compute.
  ParamsForm training_form() const {
    return pulls.is_exact() ? ParamsForm::kExact : ParamsForm::kEncoded;
  }
  // Returns the nodes whose sums a worker pushes for these micro-batches: as few as possible or, if
  // gradients are encoded, each micro-batch (P34).
  std::vector<TreeNode> NodesToPush(Step step, const std::vector<MicroBatch>& micro_batches) const;
  // Returns whether workers may sum gradients (P6a). Only servers sum encoded ones.
  bool may_sum_near() const {
    return (job.host_sum != SumUse::kOff || job.rack_sum != SumUse::kOff) &&
           job.strategy == Strategy::kParameterServers && pushes.is_exact();
  }
  // The shard of the metric tensor, with which every model's layout ends.
  ShardId metric_shard() const { return ShardId(shards.shard_count() - 1); }
  // The offset of the metric tensor within its shard, in floats.
  size_t metric_offset() const {
    return layout.offset(layout.tensor_count() - 1) - shards.range(metric_shard()).first;
  }

  // A run begins with this and keeps it, as snapshots are stored by shard.
  static uint32_t ServersMax(const Job& job) {
    const uint32_t wanted = job.servers_max != 0 ? job.servers_max : job.servers;
    return std::max(wanted, ShardPlan::kFewServers);
  }

  Job job;
  DataFacts data;
  TensorLayout layout;
  ShardPlan shards;
  PayloadPlan pushes;  // gradients
  PayloadPlan pulls;   // parameters for training
  StepPlan steps;
  std::shared_ptr<const FloatBuffer> initial;  // the flat vector of version 0; null: from the seed
};

}  // namespace pando
