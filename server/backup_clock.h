// BackupClock says when a primary repeats what a backup has not answered (P10), and which backups
// are silent (P23). Used by Replication, which keeps one debt for each backup of each shard.
// Threads: none. Owns: the time of each backup's last answer.
#pragma once

#include <map>
#include <optional>

#include "proto/outbox.h"

namespace pando {

class BackupClock {
 public:
  // What one backup of one shard owes.
  struct Debt {
    std::optional<Micros> since;  // it has not answered all that it was sent; none: it has
    Micros repeat_at = kNever;
    Micros repeat_interval{0};
  };

  explicit BackupClock(Micros lease) : lease_(lease) {}

  void EnterView(Micros now);
  void OnAnswer(const PeerId& backup, Micros now) { heard_at_[backup] = now; }
  void OnRootAck(const PeerId& backup, Micros now) {
    heard_at_[backup] = acknowledged_at_[backup] = now;
  }
  // The backup was sent something that it answers.
  void Expect(Micros now, Debt& debt);

  bool IsDue(Micros now) const { return now >= next_repeat_at_; }
  // A round over all debts: StartRound(), then IsRepeatDue() for each debt.
  void StartRound() { next_repeat_at_ = kNever; }
  // Whether to repeat now. `sends_roots`: the debt is of roots, not of an image.
  bool IsRepeatDue(Micros now, const PeerId& backup, bool sends_roots, Debt& debt);
  // How long the backup has been silent, if that is too long.  REQUIRES: debt.since.
  std::optional<Micros> SilenceOver(Micros now, const PeerId& backup, const Debt& debt) const;
  Micros NextDeadline() const { return next_repeat_at_; }

 private:
  const Micros lease_;
  Micros next_repeat_at_ = kNever;
  std::map<PeerId, Micros> heard_at_;         // backups: when they last answered
  std::map<PeerId, Micros> acknowledged_at_;  // a root
};

}  // namespace pando
