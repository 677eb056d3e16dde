// LoadGenerator is a worker's protocol without training. It pushes a gradient for every shard of
// every server. When the parameters return, it pushes the gradient of the next step. Like
// worker/session it sends under a view, names each push (shard, step, node), gathers small shards
// for one lane into a message, and repeats unanswered pushes.
// Threads: only its loop's.
#pragma once

#include <chrono>
#include <vector>

#include "bench/cpp/push_pull/load.h"
#include "bench/cpp/push_pull/shared_counters.h"
#include "common/buffer_pool.h"
#include "proto/protocol_core.h"
#include "proto/view_member.h"

namespace pando::bench {

class LoadGenerator : public ProtocolCore {
 public:
  // `rank` is the number of this worker's micro-batch. `buffers` gives the memory of gradients. All
  // arguments except `load`, `identity` and `buffers` outlive the generator.
  LoadGenerator(const Load& load, const ViewMember::Identity& identity, uint32_t rank,
                const JobPlan& plan, CounterSlot& counters, Outbox& outbox,
                const BufferSource& buffers = {});

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override;
  std::optional<SharedView> NextView(const Envelope& envelope) const {
    return member_.NextView(envelope);
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct ShardState {
    Blob gradient;
    SharedBuffer copy;  // used if Load::copies is set
    Step step;          // is pushed, or will be pushed next
    bool is_ready = true;
    Clock::time_point sent_at;
    Micros ask_at = kNever;  // when to push the gradient again
  };

  void OnParams(const Params& params);
  void OnArrived(const ParamsItem& item, Clock::time_point now);
  void FlushPushes(Micros now);
  void SendPush(const PeerId& lane, Push push);
  void RepeatUnanswered(Micros now);
  PushItem MakeItem(ShardId id) const;

  const Load load_;
  const JobPlan& plan_;
  ViewMember member_;
  CounterSlot& counters_;
  TreeNode node_;
  std::vector<ShardState> shards_;
  uint32_t waiting_count_ = 0;  // shards whose step is complete, since the barrier opened
  Micros control_at_{0};
  Micros repeat_at_ = kNever;
};

}  // namespace pando::bench
