// QueuedComputer is the computing side of a worker whose threads take their work from a queue. The
// trainer extends it with threads, and embed/ with the functions that a program calls. Its events
// go to a sink, each with a ticket, since they wait in a mailbox before the session sees them.
//
//   ComputeTickets   which events the session may still see          protocol thread
//   ParameterStore   versions, for training and for evaluation       both
//   TaskQueue        the tasks that the threads take next            both
//
// Threads: ComputePort's functions and IsCurrent on one thread, the protocol thread; the accessors
// on any. Owns: parameters, the queue.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/timeline/timeline.h"
#include "kernels/device.h"
#include "plan/job_plan.h"
#include "train/compute_port.h"
#include "train/compute_tickets.h"
#include "train/parameter_store.h"
#include "train/task_queue.h"

namespace pando {

class QueuedComputer : public ComputePort {
 public:
  struct Options {
    const JobPlan& plan;  // outlives it
    ComputeSink sink;
    ParameterStore::Options training;
    ParameterStore::Options evaluation;
    Device device = {};  // where gradients are summed
    uint64_t chunk_samples_max = kEvaluationChunkSamples;
    Timeline* timeline = nullptr;                // null: none is kept
    TimelineTrack* protocol = nullptr;           // of the protocol thread
    std::function<void()> on_queued = [] {};     // called when there is more work
    std::function<void()> on_forgotten = [] {};  // called at the end of Forget
  };
  explicit QueuedComputer(const Options& options);

  void Compute(Step step, std::vector<MicroBatch> micro_batches) override;
  void Abandon(Step from) override;
  void Verify(Step step, MicroBatch micro_batch) override;
  void Forget() override;
  void ParametersArrived(ShardId shard, Version version, const Blob& payload) override;
  void ParametersGone(ParameterUse use, Version version) override;
  void EvaluateSlice(const Evaluate& request) override;
  void EvaluationParametersArrived(ShardId shard, Version version, const Blob& payload) override;

  // Returns whether the session may see this event. Call it once for each event, in order.
  bool IsCurrent(ComputeTicket ticket, const ComputeEvent& event) {
    return tickets_.IsCurrent(ticket, event);
  }

  const ComputeSink& sink() const { return options_.sink; }
  // The ticket of events that outlive Abandon.
  ComputeTicket lasting_ticket() const { return tickets_.lasting(); }
  ParameterStore& parameters() { return parameters_; }
  const ParameterStore& parameters() const { return parameters_; }
  ParameterStore& evaluation_parameters() { return evaluation_parameters_; }
  TaskQueue& queue() { return queue_; }
  const TaskQueue& queue() const { return queue_; }
  // The most bytes of parameters held at a time so far, evaluation's included.
  uint64_t parameter_bytes_peak() const { return held_bytes_.peak(); }

 private:
  TimelineTrack::Span PullSpan(ShardId shard, Version version) const;
  void StartEvaluations();
  void Start(const Evaluate& request);
  void AbandonEvaluations(const std::function<bool(Version)>& is_abandoned);

  const Options options_;
  const TimelineNameId pull_;  // of spans on the protocol thread's track
  HeldBytes held_bytes_;
  ParameterStore parameters_;
  ParameterStore evaluation_parameters_;
  TaskQueue queue_;
  ComputeTickets tickets_;
  std::vector<Evaluate> unstarted_;                      // of one version
  std::vector<std::weak_ptr<SliceEvaluation>> running_;  // evaluations that were started
  uint64_t started_count_ = 0;
};

}  // namespace pando
