// ComputePort is the computing side of a worker as the session sees it; its events come back to the
// session. train/trainer implements it with threads, the simulator with a virtual computer. Nothing
// here knows kernels or models, because the session is a pure core (P12, P17).
#pragma once

#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "common/blob.h"
#include "common/ids.h"
#include "common/status.h"
#include "proto/messages.h"

namespace pando {

// ---- computing side -> session ----------------------------------------------------------------

// The sum of one shard over `node`'s samples is complete, usually while backward still runs. The
// nodes are those of JobPlan::NodesToPush for the micro-batches of one Compute call (with a codec:
// leaves). Each (node, shard) comes once per call, in any order.
struct GradientReady {
  Step step;
  TreeNode node;
  ShardId shard;
  Blob payload;  // in the host's memory, except with TrainerParts::sums_stay
};
// Every gradient of one Compute call has been emitted; the last event of the call.
struct StepComputed {
  Step step;
};
// P41: the hash of one micro-batch's whole gradient, before any sum. Each micro-batch that
// JobPlan::IsVerified names has one. It comes before the StepComputed of a Compute call, and ends a
// Verify call.
struct GradientHashed {
  Step step;
  MicroBatch micro_batch;
  uint64_t hash = 0;  // 0: there is none; the parameters were superseded before it was computed
};
// With layer residency: a thread computes with these shards soon, or waits for them, and no thread
// had asked for them since they were last dropped. They may be asked for again before they arrive.
enum class ParameterUse : uint8_t { kTraining, kEvaluation };
struct ParametersWanted {
  ParameterUse use;
  Version version;
  std::vector<ShardId> shards;
};
// The worker cannot go on, for the reason that a Failure message will give. kInternal is a loss
// that is not a number, kCorrupt is a picture that cannot be decoded: every worker would find
// either. All other codes are data that cannot be read here.
struct ComputeFailed {
  Status status;
};
// EvaluationResult answers EvaluateSlice.
using ComputeEvent = std::variant<GradientReady, StepComputed, GradientHashed, EvaluationResult,
                                  ParametersWanted, ComputeFailed>;

// ---- session -> computing side ----------------------------------------------------------------

// Threads: called on the protocol thread only; never blocks.
class ComputePort {
 public:
  virtual ~ComputePort() = default;

  // Computes these micro-batches of `step` (ascending, present, not empty). The work may be handed
  // out before its parameters have arrived: forward waits for them layer by layer.
  virtual void Compute(Step step, std::vector<MicroBatch> micro_batches) = 0;

  // Drops queued and running work of steps ≥ `from` (P12): a forward that waits for parameters
  // returns. No event of that work reaches the session after this call, except hashes: a
  // micro-batch that has emitted a shard may count (P41). Verifications go on.
  virtual void Abandon(Step from) = 0;

  // P41: computes one micro-batch for the hash of its gradient alone, after queued work of its step
  // and before later steps.  REQUIRES: its parameters are committed everywhere.
  virtual void Verify(Step step, MicroBatch micro_batch) = 0;

  // P21: a new generation. Drops all work, including evaluation and verification, and all
  // parameters. No earlier event reaches the session after this call.
  virtual void Forget() = 0;

  // Brings the committed parameters of one shard. They are copied before the call returns, or the
  // computing side keeps a copy of the blob (ParameterStore::Options). The two newest versions are
  // kept, so that work of step t − 1 can be computed again while version t arrives. With layer
  // residency only wanted shards arrive, and they are dropped if no work wants them any more.
  virtual void ParametersArrived(ShardId shard, Version version, const Blob& payload) = 0;

  // With layer residency: this version, or an older one, will not arrive any more. Work that waits
  // for it is dropped. A verification then reports a hash of 0, an evaluation reports nothing.
  virtual void ParametersGone(ParameterUse use, Version version) = 0;

  // Evaluates the request's test samples once its whole version has arrived through
  // EvaluationParametersArrived (before or after this call). With layer residency it begins at
  // once, layer by layer. One version is held at a time: a request or parameters of another version
  // replace it.
  virtual void EvaluateSlice(const Evaluate& request) = 0;
  virtual void EvaluationParametersArrived(ShardId shard, Version version, const Blob& payload) = 0;
};

// Names one call. Its events carry it, so that the session can drop those that are still in a
// mailbox when the call is abandoned.
using ComputeTicket = StrongId<struct ComputeTicketTag, uint64_t>;

// Takes events, each with its call's ticket. Threads: called on computing threads.
using ComputeSink = std::function<void(ComputeTicket ticket, ComputeEvent event)>;

// WorkerComputer is the computing side of a worker process, behind its mailbox: the trainer, or the
// program that the worker is part of (embed/). Its events go to a sink. Threads: IsCurrent and Stop
// on the protocol thread.
class WorkerComputer : public ComputePort {
 public:
  // Returns whether the session may see this event. Call it once for each event, in order.
  virtual bool IsCurrent(ComputeTicket ticket, const ComputeEvent& event) = 0;
  // Stops at once: threads that wait for parameters or work return. After it, call only accessors.
  virtual void Stop() = 0;
  // The most bytes of parameters held at a time so far, evaluation's included. Any thread.
  virtual uint64_t parameter_bytes_peak() const = 0;
};

}  // namespace pando
