// The functions of unreplied_gradients.h that have mutation points. Headers have none, since the
// simulator's own sources are compiled without mutations.
#include "worker/unreplied_gradients.h"

#include "common/mutation.h"

namespace pando {

void UnrepliedGradients::EnterView() {
  for (UnrepliedGradient& gradient : shards_ | std::views::join) {
    if (gradient.is_given() && Mutated(Mutation::kGiveOnce)) continue;
    gradient.delivery = Delivery::kUnsent;
    gradient.is_held = false;
  }
}

void UnrepliedGradients::TakeBackGiven() {
  if (Mutated(Mutation::kGiveOnce)) return;
  for (UnrepliedGradient& gradient : shards_ | std::views::join) {
    if (gradient.is_given()) gradient.delivery = Delivery::kUnsent;
  }
}

}  // namespace pando
