// CallTickets: the calls of a simulated worker's computing side, and which of them still report
// events. Used by the parts of VirtualComputer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "tests/sim/compute/layer_pass.h"
#include "train/compute_port.h"

namespace pando::sim {

enum class CallKind : uint8_t { kStep, kVerification, kEvaluation };

struct Call {
  Step step;
  std::vector<MicroBatch> micro_batches;
  uint64_t ticket = 0;
  CallKind kind = CallKind::kStep;
};

class CallTickets {
 public:
  enum class Which : uint8_t { kMore, kLast };  // among its call's events
  using Post = std::function<void(std::function<void()>)>;
  using Deliver = std::function<void(const ComputeEvent&)>;
  // `post` runs a function on the worker's loop; `deliver` is called there.
  CallTickets(Post post, Deliver deliver) : post_(std::move(post)), deliver_(std::move(deliver)) {}

  uint64_t Issue(Step step, CallKind kind);
  // Whether the call is neither dropped nor fully reported.
  bool IsOpen(uint64_t ticket) const { return open_.contains(ticket); }
  // Reaches the session unless the call has been dropped when its turn comes.
  void Emit(uint64_t ticket, Which which, ComputeEvent event);
  // A pass that reads these shards for this call.
  LayerPass MakePass(uint64_t ticket, ParameterUse use, Version version,
                     std::vector<ShardId> order);
  // Drops calls of kStep from this step on.
  void Abandon(Step from);
  void Forget();

 private:
  struct Issued {
    Step step;
    CallKind kind = CallKind::kStep;
  };
  const Post post_;
  const Deliver deliver_;
  uint64_t newest_ = 0;
  std::map<uint64_t, Issued> open_;
  uint64_t lasting_from_ = 0;  // the first call since Forget: hashes of earlier ones are dropped
};

}  // namespace pando::sim
