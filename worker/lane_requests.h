// LaneRequests: what is asked of the servers' lanes beside fresh pushes: versions that no push of
// ours asks for, and in a new view, or after a loss, everything again (P10).
//
// Over a slow link a step's gradients take seconds, and their replies as long: repeated on a timer,
// they would be all that it carries. So a silent lane is asked what it holds (P17's question). Its
// answer comes behind all that it was sent before, and behind all that it replied: what is lacking
// then was lost.
// Used by the session. Threads: none.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "plan/job_plan.h"
#include "worker/committed_versions.h"
#include "worker/lanes.h"
#include "worker/parameters.h"
#include "worker/unreplied_gradients.h"

namespace pando {

class LaneRequests {
 public:
  static constexpr Micros kRetryFirst = std::chrono::milliseconds(500);
  static constexpr Micros kRetryMax = std::chrono::seconds(4);
  // A lane that was not primary yet has probably received the view by then.
  static constexpr Micros kNotPrimaryRetry = std::chrono::milliseconds(20);
  // A lane whose link carries less than 4 MB/s of ours may be taken for one that is cut off.
  static constexpr size_t kSlowestBytesPerMicro = 4;

  // All outlive it.
  LaneRequests(const JobPlan& plan, CommittedVersions& versions, UnrepliedGradients& gradients,
               Parameters& parameters, Lanes& lanes);

  void EnterView(Micros now);
  void Forget();
  // What is lacking of this shard is asked for at once.
  void OnCommitted(ShardId shard) { asks_[shard.value()].at = Micros(0); }
  // The step is in the works: what compute lacks of its parameters is asked for at once.
  void OnStepBegun(Step step);
  // The lane was sent something that asks for data, or they come.
  void Expect(Micros now, const PeerId& lane);
  // The shard's lane was asked for this version.
  void OnAsked(Micros now, ShardId shard, Version version);
  void OnNotPrimary(Micros now, ShardId shard);
  // True if the answer was waited for: what was lost is known.
  bool OnAnswer(const PeerId& lane, const Answer& answer);
  // Asks a lane what it holds.
  void SendQuestion(Micros now, const PeerId& lane);

  void Tick(Micros now);
  Micros NextDeadline() const;

  // When the shard's lane was last asked, by a push or a pull.
  Micros asked_at(ShardId shard) const { return asks_[shard.value()].asked_at; }

 private:
  struct Ask {           // of a shard's lane
    Micros at{0};        // when to ask; kNever: it was asked, or sends what is needed by itself
    Micros asked_at{0};  // the last time: by a push or a pull
    Version newest;      // that it was asked for, in this view
  };
  // A lane that owes us data, in this view.
  struct Debt {
    Micros question_at = kNever;  // when to ask what it holds
    Micros interval{0};
    Micros asked_from = kNever;  // the first question that is not answered; kNever: there is none
  };
  using Pushes = std::map<PeerId, Push>;
  using Pulls = std::map<PeerId, Pull>;

  void FindLost(const AnswerItem& item);
  void QuestionSilentLanes(Micros now);
  bool Owes(const PeerId& lane) const;
  size_t BytesUnderWay(const PeerId& lane) const;
  void AskWhatIsDue(Micros now);
  void Gather(Micros now, ShardId shard, Pushes* pushes, Pulls* pulls);

  const JobPlan& plan_;
  CommittedVersions& versions_;
  UnrepliedGradients& gradients_;
  Parameters& parameters_;
  Lanes& lanes_;
  std::vector<Ask> asks_;  // by shard
  std::map<PeerId, Debt> debts_;
};

}  // namespace pando
