#include "worker/unreplied_gradients.h"

namespace pando {

void UnrepliedGradients::EnterView() {
  for (UnrepliedGradient& gradient : shards_ | std::views::join) {
    gradient.delivery = Delivery::kUnsent;
    gradient.is_held = false;
  }
}

void UnrepliedGradients::TakeBackGiven(const std::vector<ShardId>& ids) {
  for (const ShardId id : ids) {
    for (UnrepliedGradient& gradient : shards_[id.value()]) {
      if (gradient.is_given()) gradient.delivery = Delivery::kUnsent;
    }
  }
}

}  // namespace pando
