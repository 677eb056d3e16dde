// Norms exchanges the partial values of updates that need several shards (P14 to P16). It sends
// those of this lane's shards to the lanes that need them, and pulls those of others until they
// arrive. A value is named by (shard, step) and has the same bits on every replica, so any replica
// may answer. It is a part of the lane. Threads: none. Owns: others' values of two steps.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "proto/silence.h"
#include "proto/view_member.h"
#include "server/lane_part.h"

namespace pando {

class Norms : LanePart {
 public:
  // `maker` outlives it.
  Norms(const LanePart& part, const VersionMaker& maker, Micros lease)
      : LanePart(part), maker_(maker), silence_(2 * lease) {}

  void OnPartials(const Envelope& envelope, const Partials& partials);
  void OnPartialsPull(const Envelope& envelope, const PartialsPull& pull);
  // Makes the shard's partial values.  Returns the factors that the optimizer needs beyond the
  // shard's gradient, or none while values of other shards are missing; these are pulled.
  // REQUIRES: shard.is_ready().
  std::optional<std::vector<float>> CollectFactors(Micros now, Shard& shard,
                                                   const StepScalars& scalars);
  // Returns once whether there are new values. Shards that wait for values may then advance.
  bool TakeNews() { return std::exchange(has_news_, false); }

  void EnterView(Micros now);
  void Clear() { others_.clear(); }  // a new generation begins
  void Tick(Micros now) {
    SendGathered(now);
    while (auto silent = silence_.TakeDue(now)) member_.SendToScheduler(*silent);  // P23
    if (awaits_others_ && now >= pull_at_) PullMissing(now);
  }
  Micros NextDeadline() const {
    if (has_news_) return Micros(0);
    const Micros pull_at = awaits_others_ ? pull_at_ : kNever;
    return std::min({held_until_.value_or(kNever), pull_at, silence_.NextDeadline()});
  }

 private:
  std::span<const float> Find(ShardId shard, Step step) const;
  // Returns false only if values that the shard's update needs are missing. It counts them and
  // looks at this lane's shards alone, because it is asked whenever values arrive.
  bool MayBeComplete(ShardId shard, Step step) const;
  // Calls visit(shard, primary) for other lanes' shards whose values this shard's update needs.
  template <class Visit>
  void VisitOthers(ShardId shard, Visit visit) const;
  void TellOthers(const Shard& shard);
  void SendGathered(Micros now);
  void PullMissing(Micros now);

  const VersionMaker& maker_;
  std::map<Step, std::map<ShardId, std::vector<float>>> others_;
  bool has_news_ = false;
  std::map<PeerId, Partials> out_;  // until Tick, or a little longer
  std::optional<Micros> held_until_;
  bool awaits_others_ = false;
  // In a new view primaries may have sent their values before, so they are asked at once.
  bool is_view_fresh_ = false;
  Micros pull_at_{0};
  Silence silence_;  // of the lanes that were asked
};

}  // namespace pando
