// ProgramComputer is a worker's computing side if a program computes. The session hands it
// micro-batches and parameters, and the program's threads take them and give gradients. It does for
// a program what the trainer does for `pando worker` (embed/pando_worker.h).
//
//   QueuedComputer    the work and the parameters                protocol thread, and the program's
//   WorkResults       the results of the program's current work  the program's threads
//
// Threads: QueuedComputer's as there; the program's functions as in pando_worker.h. The sink is
// called on the program's threads. Owns: gradients.
// Invariants: I5 (no interruption changes a bit of what is emitted).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/buffer_pool.h"
#include "common/result.h"
#include "embed/work_results.h"
#include "plan/job_plan.h"
#include "train/queued_computer.h"

namespace pando {

class ProgramComputer : public QueuedComputer {
 public:
  using Deadline = TaskQueue::Deadline;
  using Outcome = WorkOutcome;

  // `plan` outlives it. `buffers` gives the memory of the gradients, which are sent from there.
  ProgramComputer(const JobPlan& plan, BufferSource buffers, ComputeSink sink);
  ~ProgramComputer() override;  // on the protocol thread, as Tidy
  // Frees objects that the program has finished with. Called once per turn of the loop.
  void Tidy();

  // ---- the program's threads -------------------------------------------------------------------
  // The next work replaces the current one. Returns none at the deadline, or after End.
  std::shared_ptr<const CurrentWork> NextWork(Deadline deadline);
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
  // The run ends with the version of the current work, which is a report (P32). Finish sends it.
  Status StopRun(const std::string& text);
  // The program cannot go on, so this ends the run, in this generation or the next.
  void Fail(const std::string& text);

  // The run is over for this process. Any thread.
  void End() { queue().Stop(); }
  // Adds the program's speed and waits to a heartbeat. Any thread.
  void AddTimes(Heartbeat* heartbeat) const;

 private:
  std::shared_ptr<CurrentWork> current() const;
  std::shared_ptr<CurrentWork> Release();
  ParameterStore& StoreFor(const CurrentWork& work);
  bool IsSuperseded(const CurrentWork& work);
  bool Yields(const CurrentWork& work) const;
  void GiveBack(CurrentWork& work);
  Result<Outcome> Hold(CurrentWork& work, std::shared_ptr<ParameterStore::Hold>* hold);

  const JobPlan& plan_;
  BufferPool gradients_;
  WorkResults results_;
  std::atomic<int64_t> read_ns_ = 0;        // waits for samples that have ended
  std::atomic<int64_t> reading_since_ = 0;  // ns of the steady clock; 0: no such wait

  mutable std::mutex mutex_;  // guards all members below
  std::shared_ptr<CurrentWork> current_;
  std::vector<std::shared_ptr<CurrentWork>> done_;  // the protocol thread drops their holds
  std::string failure_;                             // empty: no failure
  ComputeTicket failed_with_;                       // the ticket of its last event
};

}  // namespace pando
