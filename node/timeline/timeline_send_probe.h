// TimelineSendProbe records when gradients (push), parameters (reply) and roots (replicate) are
// sent, shard by shard. The time of sending a message is divided by the items' bytes. Servers and
// workers have one. Threads: one at a time, that of the track.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/timeline/timeline.h"
#include "proto/view_member.h"

namespace pando {

class TimelineSendProbe : public SendProbe {
 public:
  // Both outlive it, or are null.
  TimelineSendProbe(Timeline* timeline, TimelineTrack* track);
  SendProbe* get() { return timeline_ == nullptr ? nullptr : this; }  // null: the job asks for none
  void BeginSend(const Message& message) override;
  void EndSend() override;

 private:
  struct Item {
    ShardId shard;
    Step step;
    size_t bytes = 0;
  };
  Timeline* const timeline_;
  TimelineTrack* const track_;
  TimelineNameId push_, reply_, replicate_;
  // The current message. A message without items has no name.
  TimelineNameId name_;
  std::vector<Item> items_;
  int64_t begin_ns_ = 0;
};

}  // namespace pando
