// Contradictions has the hashes with which backups contradict a primary about a version (P8). A
// primary reports them until the scheduler has settled them. Threads: none.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "proto/messages.h"

namespace pando {

class Contradictions {
 public:
  // Compares the two hashes.  Returns whether they differ; then the backup's is reported until it
  // has given the same one, or the version is committed.
  bool Compare(const Divergence& hashes) {
    const std::pair key{hashes.shard, hashes.backup};
    if (hashes.primary_hash == hashes.backup_hash) return reported_.erase(key), false;
    reported_[key] = hashes;
    return true;
  }
  // The backup has the primary's hash of the shard's newest, uncommitted version.
  void OnAgreed(ShardId shard, const PeerId& backup) {
    std::vector<PeerId>& agreed = agreed_[shard];
    if (std::ranges::find(agreed, backup) == agreed.end()) agreed.push_back(backup);
  }
  void OnCommitted(ShardId shard, Version committed) {
    std::erase_if(reported_, [&](const auto& entry) {
      return entry.first.first == shard && entry.second.version <= committed;
    });
    if (const auto agreed = agreed_.find(shard); agreed != agreed_.end()) agreed->second.clear();
  }
  void Forget(ShardId shard) {
    std::erase_if(reported_, [&](const auto& entry) { return entry.first.first == shard; });
    agreed_.erase(shard);
  }
  void Clear() {
    reported_.clear();
    agreed_.clear();
  }

  // A version that replicas have contradicted needs more that agree, the primary included. Replicas
  // that are gone since count, too.
  bool MayCommit(ShardId shard, Version newest) const {
    const auto against = std::ranges::count_if(reported_, [&](const auto& entry) {
      return entry.first.first == shard && entry.second.version == newest;
    });
    if (against == 0) return true;
    const auto agreed = agreed_.find(shard);
    return 1 + (agreed == agreed_.end() ? 0 : std::ssize(agreed->second)) > against;
  }
  bool AddReports(std::vector<Message>* reports) const {
    for (const auto& [key, divergence] : reported_) reports->push_back(divergence);
    return !reported_.empty();
  }

 private:
  std::map<std::pair<ShardId, PeerId>, Divergence> reported_;
  std::map<ShardId, std::vector<PeerId>> agreed_;
};

}  // namespace pando
