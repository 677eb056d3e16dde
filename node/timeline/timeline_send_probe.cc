#include "node/timeline/timeline_send_probe.h"

#include <variant>

namespace pando {

TimelineSendProbe::TimelineSendProbe(Timeline* timeline, TimelineTrack* track)
    : timeline_(timeline), track_(track) {
  if (timeline == nullptr) return;
  push_ = timeline->Name({"push", "push", "shard"});
  reply_ = timeline->Name({"reply", "pull", "shard"});
  replicate_ = timeline->Name({"replicate", "replicate", "shard"});
}

// Other messages have no items.
void TimelineSendProbe::BeginSend(const Message& message) {
  items_.clear();
  const auto take = [this](TimelineNameId name, const auto& item, Step step) {
    name_ = name;
    items_.push_back({item.shard, step, item.payload.size_bytes()});
  };
  if (const auto* push = std::get_if<Push>(&message)) {
    for (const PushItem& item : push->items) take(push_, item, item.step);
  } else if (const auto* params = std::get_if<Params>(&message)) {
    for (const ParamsItem& item : params->items) take(reply_, item, StepUpdating(item.version));
  } else if (const auto* root = std::get_if<Root>(&message)) {
    for (const RootItem& item : root->items) take(replicate_, item, item.step);
  }
  begin_ns_ = TimelineNow();
}

void TimelineSendProbe::EndSend() {
  if (items_.empty()) return;
  const int64_t end_ns = TimelineNow();
  double all_bytes = 0;
  for (const Item& item : items_) all_bytes += static_cast<double>(item.bytes);
  double bytes = 0;
  int64_t from_ns = begin_ns_;
  for (const Item& item : items_) {
    bytes += static_cast<double>(item.bytes);
    const double share = all_bytes == 0 ? 1 : bytes / all_bytes;
    const int64_t to_ns =
        begin_ns_ + static_cast<int64_t>(share * static_cast<double>(end_ns - begin_ns_));
    if (timeline_->Wants(item.step))
      track_->AddSpan(name_, from_ns, to_ns, item.step, item.shard.value());
    from_ns = to_ns;
  }
}

}  // namespace pando
