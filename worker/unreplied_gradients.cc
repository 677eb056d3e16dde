#include "worker/unreplied_gradients.h"

namespace pando {

void UnrepliedGradients::EnterView() {
  for (UnrepliedGradient& gradient : shards_ | std::views::join) {
    gradient.delivery = Delivery::kUnsent;
    gradient.is_held = false;
  }
}

void UnrepliedGradients::TakeBackGiven() {
  for (UnrepliedGradient& gradient : shards_ | std::views::join) {
    if (gradient.is_given()) gradient.delivery = Delivery::kUnsent;
  }
}

}  // namespace pando
