// LaneRequests asks the servers' lanes for everything that fresh pushes do not ask for: versions
// that no push of ours helps to make, and in a new view, or after a loss, everything again (P10).
//
// Over a slow link a step's gradients take seconds, and so do their replies. If a timer repeated
// them, the link would carry nothing else. So a silent lane is asked what it holds (P17's
// question). Its answer comes after everything that it was sent before, and after all its replies:
// all that is missing then was lost. A tick looks at the shards about which something has
// changed; only a question to a silent lane needs a look at all shards. Used by the session.
// Threads: none.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "worker/lanes.h"
#include "worker/parameters.h"

namespace pando {

class LaneRequests : SessionPart {
 public:
  static constexpr Micros kRetryFirst = std::chrono::milliseconds(500);
  static constexpr Micros kRetryMax = std::chrono::seconds(4);
  // A lane that was not primary yet has probably received the view by then.
  static constexpr Micros kNotPrimaryRetry = std::chrono::milliseconds(20);
  // A lane whose link carries less than 4 MB/s from us may be reported as cut off.
  static constexpr size_t kSlowestBytesPerMicro = 4;

  // All outlive it.
  LaneRequests(const SessionPart& part, Parameters& parameters, Lanes& lanes)
      : SessionPart(part), parameters_(parameters), lanes_(lanes), asks_(versions_.shard_count()) {}

  void EnterView(Micros now) {
    for (Ask& ask : asks_) {
      ask.at = now;
      ask.is_again = true;
      ask.newest = {};
    }
    debts_.clear();  // other lanes may be asked now
    works_seen_.reset();
  }
  void Forget() {
    std::ranges::fill(asks_, Ask{});
    works_seen_.reset();
  }
  // Asks at once for the shard's version, if compute lacks it.
  void OnCommitted(ShardId shard) { AskFrom(shard, Micros(0)); }
  // Compute may have the shard's parameters now, and need a later version.
  void OnParams(ShardId shard) { looks_at_.insert(shard); }
  // The step is handed to compute. Asks at once for the parameters of it that compute lacks.
  void OnStepBegun(Step step);
  // The lane was sent a request for data, or has sent data.
  void Expect(Micros now, const PeerId& lane) {
    Debt& debt = debts_[lane];
    debt.interval = kRetryFirst;
    debt.question_at = now + debt.interval;
    question_at_ = std::min(question_at_, debt.question_at);
  }
  // The shard's lane was asked for this version.
  void OnAsked(Micros now, ShardId shard, Version version) {
    Ask& ask = asks_[shard.value()];
    ask.at = kNever;
    ask.asked_at = now;
    Newest(shard, version) = std::max(Newest(shard, version), version);
  }
  void OnNotPrimary(Micros now, ShardId shard) {
    asks_[shard.value()].is_again = true;
    AskFrom(shard, std::min(asks_[shard.value()].at, now + kNotPrimaryRetry));
    parameters_.wanted().AskSoon(shard, now + kNotPrimaryRetry);
  }
  // Returns whether the answer was expected: the losses are known now.
  bool OnAnswer(const PeerId& lane, const Answer& answer);
  // Asks a lane what it holds.
  void SendQuestion(Micros now, const PeerId& lane);

  void Tick(Micros now) {
    QuestionSilentLanes(now);
    AskWhatIsDue(now);
  }
  Micros NextDeadline() const;

  // When the shard's lane was last asked, by a push or a pull.
  Micros asked_at(ShardId shard) const { return asks_[shard.value()].asked_at; }

 private:
  struct Ask {           // what a shard's lane is asked for
    Micros at{0};        // when to ask; kNever: not needed, or it comes without a request
    Micros asked_at{0};  // when it was last asked, by a push or a pull
    // Answers to our pushes may be lost, or the lane has refused them. Otherwise they are on their
    // way: with staleness the next step's pushes are, whenever a version is committed.
    bool is_again = false;
    // The newest versions that it was asked for, in this view, by their turn: a push of one step
    // does not ask for what the step before makes.
    std::array<Version, kStalenessMax + 1> newest;
  };
  Version& Newest(ShardId shard, Version version) {
    return asks_[shard.value()].newest[version.value() % (plan_.steps.staleness() + 1)];
  }
  // The state of a lane that owes us data, in this view.
  struct Debt {
    Micros question_at = kNever;  // when to ask what it holds
    Micros interval{0};
    Micros asked_from = kNever;  // the first question that is not answered; kNever: there is none
  };
  using Pushes = std::map<PeerId, Push>;

  void AskFrom(ShardId shard, Micros at) {
    asks_[shard.value()].at = at;
    looks_at_.insert(shard);
  }
  std::set<ShardId> TakeShardsToLookAt(Micros now);
  void FindLost(const AnswerItem& item);
  void QuestionSilentLanes(Micros now);
  bool Owes(const PeerId& lane) const;
  size_t BytesUnderWay(const PeerId& lane) const;
  void AskWhatIsDue(Micros now);
  void Gather(Micros now, ShardId shard, Pushes* pushes, std::vector<PullItem>* pulls);

  Parameters& parameters_;
  Lanes& lanes_;
  std::vector<Ask> asks_;  // by shard
  // The shards that the next tick looks at, because they may have become due, and when further ones
  // do. All of them, if the works have changed: compute may lack other versions now.
  std::set<ShardId> looks_at_;
  std::optional<uint64_t> works_seen_ = 0;  // Steps::change_count() in the last look
  std::set<std::pair<Micros, ShardId>> due_;
  std::map<PeerId, Debt> debts_;
  Micros question_at_ = kNever;  // no debt has an earlier one
};

}  // namespace pando
