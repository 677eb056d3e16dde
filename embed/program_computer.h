// ProgramComputer is a worker's computing side if a program computes. The session hands it
// micro-batches and parameters (ComputePort), and the program's threads take them and give
// gradients. It does for a program what the trainer does for `pando worker` (embed/pando_worker.h).
//
//   ComputeTickets    the events that the session may still see  protocol thread
//   WorkQueue         the program's next work                    both
//   ParameterStore    versions, copied by the program's threads  both
//   WorkResults       the results of the program's current work  the program's threads
//
// Threads: ComputePort, IsCurrent and Stop on the protocol thread; the program's functions as in
// pando_worker.h. The sink is called on the program's threads. Owns: parameters, gradients.
// Invariants: I5 (no interruption changes a bit of what is emitted).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/buffer_pool.h"
#include "common/result.h"
#include "embed/work_queue.h"
#include "embed/work_results.h"
#include "plan/job_plan.h"
#include "train/compute_port.h"
#include "train/parameter_store.h"
#include "train/task_queue.h"

namespace pando {

class ProgramComputer : public WorkerComputer {
 public:
  using Deadline = WorkQueue::Deadline;
  using Outcome = WorkOutcome;

  // `plan` outlives it. `buffers` gives the memory of the gradients, which are sent from there.
  ProgramComputer(const JobPlan& plan, BufferSource buffers, ComputeSink sink);
  ~ProgramComputer() override;  // on the protocol thread, as Tidy

  void Compute(Step step, std::vector<MicroBatch> micro_batches) override;
  void Abandon(Step from) override;
  void Verify(Step step, MicroBatch micro_batch) override;
  void Forget() override;
  void ParametersArrived(ShardId shard, Version version, const Blob& payload) override;
  void ParametersGone(ParameterUse use, Version version) override;
  void EvaluateSlice(const Evaluate& request) override;
  void EvaluationParametersArrived(ShardId shard, Version version, const Blob& payload) override;
  bool IsCurrent(ComputeTicket ticket, const ComputeEvent& event) override;
  // Stops the work of this membership. Another membership may follow.
  void Stop() override { Forget(); }
  uint64_t parameter_bytes_peak() const override { return held_bytes_.peak(); }
  // Frees objects that the program has finished with. Called once per turn of the loop.
  void Tidy();

  // ---- the program's threads -------------------------------------------------------------------
  // The next work replaces the current one. Returns none at the deadline, or if `is_over`.
  std::shared_ptr<const CurrentWork> NextWork(Deadline deadline,
                                              const std::function<bool()>& is_over);
  // Returns the samples that NextWork will most likely want after `ahead` others; none if unknown.
  struct Guess {
    Step step;
    MicroBatch micro_batch;
    std::vector<uint64_t> samples;
  };
  std::optional<Guess> PeekWork(uint32_t ahead) const;
  // The program has the current work's samples, for which it had waited. Every call below implies
  // this.
  void EndReading();
  // Copies the tensor in the current work's version. `holds` says which version `to` has.
  Result<Outcome> LoadTensor(size_t tensor, float* to, uint64_t* holds, Deadline deadline);
  Result<Outcome> GiveGradient(size_t tensor, const float* values, double weight);
  Result<Outcome> Finish(std::span<const double> sums);
  void Wake() { queue_.Wake(); }
  // The program cannot go on, so this ends the run, in this generation or the next.
  void Fail(const std::string& text);

  // Adds the program's speed and waits to a heartbeat. Any thread.
  void AddTimes(Heartbeat* heartbeat) const;

 private:
  std::shared_ptr<CurrentWork> current() const;
  std::shared_ptr<CurrentWork> Release();
  bool IsSuperseded(const CurrentWork& work) const;
  bool Yields(const CurrentWork& work) const;
  void GiveBack(CurrentWork& work);
  Result<Outcome> Hold(CurrentWork& work, std::shared_ptr<ParameterStore::Hold>* hold);
  void StartEvaluations();

  const JobPlan& plan_;
  const ComputeSink sink_;
  HeldBytes held_bytes_;
  ParameterStore parameters_;
  ParameterStore evaluation_parameters_;
  BufferPool gradients_;
  WorkResults results_;
  WorkQueue queue_;
  ComputeTickets tickets_;                  // only the protocol thread uses it
  std::vector<Evaluate> unstarted_;         // of one version; only the protocol thread uses it
  std::atomic<uint64_t> lasting_{0};        // tickets_.lasting(), for Fail
  std::atomic<int64_t> read_ns_ = 0;        // waits for samples that have ended
  std::atomic<int64_t> reading_since_ = 0;  // ns of the steady clock; 0: no such wait

  mutable std::mutex mutex_;  // guards all members below
  std::vector<std::weak_ptr<ProgramCall>> calls_;
  std::vector<std::weak_ptr<ProgramEvaluation>> evaluations_;
  std::shared_ptr<CurrentWork> current_;
  std::vector<std::shared_ptr<CurrentWork>> done_;  // the protocol thread drops their holds
  std::string failure_;                             // empty: no failure
  uint64_t failed_with_ = 0;                        // the ticket of its last event
};

}  // namespace pando
