// ComputePort: the computing side of a worker as the session sees it, and the events that come
// back. train/trainer implements it with threads; the simulator with a virtual computer. Nothing
// here knows of kernels or models: the session is a pure core (P12, P17 are its business).
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "common/blob.h"
#include "common/ids.h"
#include "common/status.h"
#include "proto/messages.h"

namespace pando {

// ---- computing side -> session ----------------------------------------------------------------

// The sum over `node`'s samples of one shard is done, usually while backward still runs. Nodes are
// those of MicroBatchTree::Cover over the micro-batches of one Compute call; each (node, shard)
// comes once per call, in any order.
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
// P41: what one micro-batch's whole gradient hashes to, before any sum. Of each micro-batch that
// JobPlan::IsVerified names, whether it came by Compute, before its StepComputed, or by Verify,
// which ends with it.
struct GradientHashed {
  Step step;
  MicroBatch micro_batch;
  uint64_t hash = 0;  // 0: none, the parameters were superseded before their turn came
};
// With layer residency: a thread computes with these shards soon, or waits for them, and no thread
// had asked for them since they were last dropped. They may be asked for again before they have
// come.
enum class ParameterUse : uint8_t { kTraining, kEvaluation };
struct ParametersWanted {
  ParameterUse use;
  Version version;
  std::vector<ShardId> shards;
};
// The worker cannot go on. kInternal: a loss that is not a number, kCorrupt: a picture that cannot
// be decoded, both of which every worker would find; others: data that cannot be read here. For a
// Failure message.
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
  // returns. No event of that work reaches the session after this call, except hashes of what had
  // handed over a shard, which may count (P41). Verifications go on.
  virtual void Abandon(Step from) = 0;

  // P41: computes one micro-batch for the hash of its gradient alone, after what is queued of its
  // step and before later steps.  REQUIRES: its parameters are committed everywhere.
  virtual void Verify(Step step, MicroBatch micro_batch) = 0;

  // P21: a new generation. Drops all work, of evaluation and verification too, and all parameters;
  // no event of before reaches the session after this call.
  virtual void Forget() = 0;

  // The committed parameters of one shard; copied before the call returns. The two newest versions
  // are kept, so that work of step t − 1 can be computed again while version t arrives.
  // With layer residency: what was wanted; dropped if no work wants it any more.
  virtual void ParametersArrived(ShardId shard, Version version, const Blob& payload) = 0;

  // With layer residency: this version, or an older one, will not arrive any more. Work that waits
  // for it is dropped; a verification reports a hash of 0, an evaluation nothing.
  virtual void ParametersGone(ParameterUse use, Version version) = 0;

  // Evaluates the request's test samples once its version has arrived whole through
  // EvaluationParametersArrived (before or after this call); with layer residency at once, layer by
  // layer. One version at a time: a request or parameters of another version replace what was held
  // for the former one.
  virtual void EvaluateSlice(const Evaluate& request) = 0;
  virtual void EvaluationParametersArrived(ShardId shard, Version version, const Blob& payload) = 0;
};

// Names one call. Its events carry it, so that events are recognised which are still in a mailbox
// when the call is abandoned.
using ComputeTicket = StrongId<struct ComputeTicketTag, uint64_t>;

// WorkerComputer: what computes in a worker process, behind its mailbox: the trainer, or the
// program that the worker is part of (embed/). Its events go to a sink, with tickets. Threads:
// IsCurrent and Stop on the protocol thread.
class WorkerComputer : public ComputePort {
 public:
  // Whether the session may see this event. Events are asked in the order in which they were sunk.
  virtual bool IsCurrent(ComputeTicket ticket, const ComputeEvent& event) = 0;
  // Stops at once: what waits for parameters or work returns. After it, call only accessors.
  virtual void Stop() = 0;
  // The most bytes of parameters held at a time so far, evaluation's included. Any thread.
  virtual uint64_t parameter_bytes_peak() const = 0;
};

}  // namespace pando
