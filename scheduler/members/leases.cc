#include "scheduler/members/leases.h"

#include <algorithm>

namespace pando {

void Leases::Begin(Micros now) {
  for (auto& [node, entry] : entries_) entry.heard_at = now;
  heard_at_ = now;
}

void Leases::OnHeardOfRun(Micros now) {
  heard_at_ = now;
  has_told_deafness_ = false;
}

void Leases::OnHeard(Micros now, NodeId node) { entries_[node] = {.heard_at = now}; }

void Leases::OnDisconnect(Micros now, NodeId node) {
  Entry& entry = entries_[node];
  if (entry.suspected_at) return;
  entry.suspected_at = now;
  look_at_ = std::min(look_at_, now + kSuspectGrace);
}

// Ticks come so often that only a pause of this process is long compared to a lease (P27). Most of
// them look at no member: a message only puts the end of its sender's lease off.
std::vector<Leases::Expired> Leases::Judge(Micros now) {
  const bool was_away = now - judged_at_ > lease_ / 2;
  const bool is_deaf = now - heard_at_ > lease_ / 2;
  judged_at_ = now;
  if (was_away || is_deaf) renewed_at_ = now;
  if (!was_away && !is_deaf && now < look_at_) return {};
  look_at_ = now + lease_ / 4;
  std::vector<Expired> dead;
  for (auto& [node, entry] : entries_) {
    if (was_away || is_deaf) {
      entry.heard_at = now;
      if (entry.suspected_at) entry.suspected_at = now;
    }
    const Micros end = entry.heard_at + lease_for_(node) + Micros(1);
    const Micros grace_end = entry.suspected_at ? *entry.suspected_at + kSuspectGrace : kNever;
    if (now >= end) {
      dead.push_back({node, "lease"});
    } else if (now >= grace_end) {
      dead.push_back({node, "socket"});
    } else {
      look_at_ = std::min({look_at_, end, grace_end});
    }
  }
  return dead;
}

std::optional<Micros> Leases::TakeDeafness(Micros now) {
  const Micros silence = now - heard_at_;
  if (silence <= lease_ || entries_.empty() || has_told_deafness_) return std::nullopt;
  has_told_deafness_ = true;
  return silence;
}

bool Leases::IsUnheard(Micros now, NodeId node) const {
  return SilenceSince(now, node) > lease_ / 2 || (renewed_at_ && now - *renewed_at_ < lease_);
}

}  // namespace pando
