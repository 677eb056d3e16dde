// Takes a program's results for its current work: gradients, which are sent shard by shard, and
// sums. ProgramComputer uses it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "embed/gradient_builder.h"
#include "plan/job_plan.h"
#include "train/micro_batch_time.h"
#include "train/parameter_store.h"
#include "train/task_queue.h"

namespace pando {

// The result of a call that may end early: kAgain at the deadline, kAbandoned if the work does not
// count any more.
enum class WorkOutcome : uint8_t { kDone, kAgain, kAbandoned };

// The program's current work: one micro-batch, or one slice of the test set.
struct CurrentWork {
  MicroBatchTask micro_batch;                   // set if `evaluation` is null
  std::shared_ptr<SliceEvaluation> evaluation;  // set otherwise
  std::vector<uint64_t> samples;                // indices into the training or test samples
  std::string stop_text;                        // of a report: why the run ends; empty: it goes on
  std::optional<GradientBuilder> gradient;
  std::vector<uint64_t> shard_hashes;       // set if it is verified (P41)
  std::atomic<bool> is_partly_out = false;  // a shard is in the sum
  std::chrono::steady_clock::time_point started_at{};
  std::atomic<int64_t> waited_ns = 0;  // wait for parameters

  bool is_training() const { return evaluation == nullptr; }
  bool is_report() const {
    return evaluation != nullptr && evaluation->request.part == EvaluationPart::kReport;
  }
  bool is_hashed() const { return !shard_hashes.empty(); }
  // No result is needed any more.
  bool is_abandoned() const {
    return is_training() ? micro_batch.call->is_abandoned : evaluation->is_abandoned;
  }
  Step step() const { return micro_batch.call->step; }
  Version version() const {
    return is_training() ? micro_batch.call->version : evaluation->request.version;
  }

  // Whether it does not count any more.
  bool is_dropped() const {
    return is_training() ? micro_batch.call->IsDropped(is_partly_out, is_hashed())
                         : evaluation->is_abandoned.load();
  }
  void DropHold() {
    std::lock_guard lock(hold_mutex);
    hold.reset();
  }

  // The hold on its version. Its first parameter takes it; the protocol thread drops it.
  std::mutex hold_mutex;  // guards:
  std::shared_ptr<ParameterStore::Hold> hold;
};

// Threads: the program's; several may call Give at once. Owns: which shards are in the sums.
class WorkResults {
 public:
  // `plan` and `sink` outlive it.
  WorkResults(const JobPlan& plan, const ComputeSink& sink) : plan_(plan), sink_(sink) {}

  // Gives the tensor's gradient, times the weight. An error of kInternal has ended the run.
  // REQUIRES: the work is training.
  Result<WorkOutcome> Give(CurrentWork& work, size_t tensor, const float* values, double weight);
  // Whether a shard of it is in the sum.
  bool IsPartlyOut(const MicroBatchTask& work);
  // kAbandoned: the work was abandoned when it was partly in the sum.
  Result<WorkOutcome> Finish(CurrentWork& work, std::span<const double> sums);
  // The recent mean time of a micro-batch, without waits; 0 before the first. Any thread.
  uint64_t micro_batch_us() const { return static_cast<uint64_t>(time_.average_ns() / 1000); }

 private:
  void AddToSum(CurrentWork& work, const std::vector<ShardId>& shards);
  bool IsNew(const MicroBatchTask& work, ShardId shard);
  Result<WorkOutcome> GiveRest(CurrentWork& work, std::span<const double> sums);
  Result<WorkOutcome> FinishTraining(CurrentWork& work, std::span<const double> sums);
  Result<WorkOutcome> FinishEvaluation(const CurrentWork& work, std::span<const double> sums);
  Result<WorkOutcome> Diverge(const CurrentWork& work, const std::string& what);

  const JobPlan& plan_;
  const ComputeSink& sink_;
  MicroBatchTime time_;
  std::mutex mutex_;  // guards ComputeCall::added
};

}  // namespace pando
