#include "tests/sim/lead/copies.h"

#include <algorithm>

namespace pando::sim {
namespace {

constexpr Micros kAwayMax = std::chrono::milliseconds(200);
constexpr Micros kStayMax = std::chrono::seconds(10);

}  // namespace

uint64_t VirtualCopies::Mark() {
  ++mark_;
  World& world = around_.world;
  reaches_at_ = std::max(reaches_at_, world.now() + world.chance().Until(around_.lag_max));
  world.After(reaches_at_ - world.now(),
              [this, standby = standby_, mark = mark_, folder = around_.look()] {
                if (standby == standby_ && !is_deposed_) OnReached(mark, folder);
              });
  return mark_;
}

// As StandbyKeeper::Follow: the leader waits for the standby before the list names it.
void VirtualCopies::OnReached(uint64_t mark, const FolderState& folder) {
  reached_ = mark;
  copy_ = folder;
  if (!around_.is_running()) return;
  if (stage_ == Stage::kFilled && reached_ >= due_) {
    stage_ = Stage::kAwaited;
    due_ = Mark();
  } else if (stage_ == Stage::kAwaited && reached_ >= due_) {
    stage_ = Stage::kListed;
  }
  around_.on_reached();
}

void VirtualCopies::Come() {
  Chance& chance = around_.world.chance();
  around_.world.After(chance.Until(kAwayMax), [this] {
    if (is_deposed_ || !around_.is_running()) return;
    ++standby_;
    stage_ = Stage::kFilled;
    due_ = Mark();
  });
  around_.world.After(kAwayMax + chance.Until(kStayMax), [this] { Leave(); });
}

// A leader that is stopped or dead does not take it off the list.
void VirtualCopies::Leave() {
  if (is_deposed_) return;
  if (!around_.is_running()) return around_.world.After(kAwayMax, [this] { Leave(); });
  ++standby_;
  stage_ = Stage::kAbsent;
  around_.on_reached();
  Come();
}

}  // namespace pando::sim
