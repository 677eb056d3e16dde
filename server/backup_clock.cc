#include "server/backup_clock.h"

#include <algorithm>

#include "server/lane_limits.h"

namespace pando {

void BackupClock::EnterView(Micros now) {
  heard_at_.clear();
  acknowledged_at_.clear();
  next_repeat_at_ = now;
}

void BackupClock::Expect(Micros now, Debt& debt) {
  if (!debt.since) {
    debt.since = now;
    debt.repeat_interval = kRootRetryFirst;
  }
  debt.repeat_at = now + debt.repeat_interval;
  next_repeat_at_ = std::min(next_repeat_at_, debt.repeat_at);
}

// Over a slow link other roots are acknowledged before this one: what is under way is not repeated.
bool BackupClock::IsRepeatDue(Micros now, const PeerId& backup, bool sends_roots, Debt& debt) {
  const auto acknowledged = acknowledged_at_.find(backup);
  if (acknowledged != acknowledged_at_.end() && sends_roots)
    debt.repeat_at = std::max(debt.repeat_at, acknowledged->second + debt.repeat_interval);
  const bool is_due = now >= debt.repeat_at;
  if (is_due) {
    debt.repeat_interval = std::min(2 * debt.repeat_interval, kRootRetryMax);
    debt.repeat_at = now + debt.repeat_interval;
  }
  next_repeat_at_ = std::min(next_repeat_at_, debt.repeat_at);
  return is_due;
}

std::optional<Micros> BackupClock::SilenceOver(Micros now, const PeerId& backup,
                                               const Debt& debt) const {
  const auto heard = heard_at_.find(backup);
  const Micros since =
      heard == heard_at_.end() ? *debt.since : std::max(*debt.since, heard->second);
  if (now - since < 2 * lease_) return std::nullopt;
  return now - since;
}

}  // namespace pando
