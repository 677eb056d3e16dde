// Inquiry has the questions of promoted primaries: which in-sync backups have not told yet which
// version they have made (P22). Replication asks and takes the answers; ShardSteps seals no step of
// a shard whose inquiry is open. Threads: none.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "proto/messages.h"

namespace pando {

class Inquiry {
 public:
  // Asks these backups of the shard.
  void Begin(ShardId shard, const std::vector<PeerId>& backups) {
    asked_[shard] = {backups.begin(), backups.end()};
  }
  // Asks only those that are still backups in the new view.
  void Retain(ShardId shard, const std::vector<PeerId>& backups) {
    const auto asked = asked_.find(shard);
    if (asked == asked_.end()) return;
    std::erase_if(asked->second, [&](const PeerId& peer) {
      return std::ranges::find(backups, peer) == backups.end();
    });
    EndIfAnswered(shard);
  }
  void OnAnswer(ShardId shard, const PeerId& backup) {
    const auto asked = asked_.find(shard);
    if (asked == asked_.end()) return;
    asked->second.erase(backup);
    EndIfAnswered(shard);
  }
  void End(ShardId shard) { asked_.erase(shard); }
  void Clear() {
    asked_.clear();
    answered_.clear();
  }

  bool IsOpen(ShardId shard) const { return asked_.contains(shard); }
  bool IsOpen(ShardId shard, const PeerId& backup) const {
    const auto asked = asked_.find(shard);
    return asked != asked_.end() && asked->second.contains(backup);
  }
  // Takes the shards whose inquiries have ended with the last answer.
  std::set<ShardId> TakeAnswered() { return std::exchange(answered_, {}); }

 private:
  void EndIfAnswered(ShardId shard) {
    if (!asked_.at(shard).empty()) return;
    asked_.erase(shard);
    answered_.insert(shard);
  }

  std::map<ShardId, std::set<PeerId>> asked_;  // the backups that have not answered
  std::set<ShardId> answered_;
};

}  // namespace pando
