// Helping lets a worker that has done its part of a step help others. If it waits much longer than
// a step takes (StepClock), it asks every primary. When all have answered, it computes
// micro-batches that some of them lack, one for each computing thread, and asks again. The bits are
// the same; the first sum to arrive counts. Workers begin at different places, by rank. If a
// version is late because a server is silent, no worker computes anything, since all answers are
// needed. A member without work pulls nothing: it asks from time to time how far the run is, which
// measures a step, and pulls a version only to help. Used by the session. Threads: none.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "worker/lane_requests.h"
#include "worker/worker_core.h"

namespace pando {

// Questions asks every primary, on each new view and before help, which version it has and what it
// holds of the next step (P17). Used by the session. Threads: none.
class Questions {
 public:
  static constexpr Micros kRetryFirst = std::chrono::milliseconds(10);
  static constexpr Micros kRetryMax = std::chrono::milliseconds(200);
  // A lane that does not answer within this time may not have received our view.
  static constexpr Micros kHintAfter = std::chrono::milliseconds(100);

  // All outlive it.
  Questions(const ViewMember& member, Lanes& lanes, LaneRequests& requests)
      : member_(member), lanes_(lanes), requests_(requests) {}

  void EnterView(Micros now) {
    interval_ = kRetryFirst;
    Ask(now);
  }
  // Asks every primary, from this time on.
  void Ask(Micros at) {
    lanes_asked_.clear();
    answers_.Clear();
    for (const ShardPlacement& placement : member_.view().shards)
      lanes_asked_.emplace(placement.primary, false);
    ask_at_ = at;
  }
  // Whether answers are still to come.
  bool is_open() const { return !lanes_asked_.empty(); }

  // True if it was the last answer: all primaries have answered in this view.
  bool OnAnswer(Micros now, const PeerId& from, const Answer& answer) {
    const auto asked = lanes_asked_.find(from);
    if (asked == lanes_asked_.end() || asked->second) return false;
    asked->second = true;
    const size_t shard_count = member_.view().shards.size();
    for (const AnswerItem& item : answer.items) {
      if (item.shard.value() < shard_count) answers_.Add(item);
    }
    for (const auto& [lane, has_answered] : lanes_asked_) {
      if (!has_answered) return false;
    }
    if (answers_.size() < shard_count) {  // a shard is still being restored
      Ask(now + interval_);
      return false;
    }
    lanes_asked_.clear();
    interval_ = kRetryFirst;
    return true;
  }
  // The answers to the last questions. They are complete once all primaries have answered.
  const ShardAnswers& answers() const { return answers_; }

  void Tick(Micros now) {
    if (now < NextDeadline()) return;
    for (const auto& [lane, has_answered] : lanes_asked_) {
      if (has_answered || lane.node == kUnknownNode) continue;
      if (interval_ > kHintAfter) lanes_.HintView(now, lane);
      requests_.SendQuestion(now, lane);
    }
    ask_at_ = now + interval_;
    interval_ = std::min(2 * interval_, kRetryMax);
  }
  Micros NextDeadline() const { return is_open() ? ask_at_ : kNever; }

 private:
  const ViewMember& member_;
  Lanes& lanes_;
  LaneRequests& requests_;
  std::map<PeerId, bool> lanes_asked_;  // whether they have answered
  ShardAnswers answers_;
  Micros ask_at_{0};
  Micros interval_{0};
};

// StepClock measures how long a step usually takes, and so how long an idle worker waits before it
// computes micro-batches of others.
class StepClock {
 public:
  static constexpr int kPatienceSteps = 3;
  static constexpr Micros kPatienceMin = std::chrono::milliseconds(100);
  static constexpr int kMemorySteps = 8;  // over which the usual time is taken

  // Every shard is now known to have committed this version.  True if the version is new. A worker
  // that asks from time to time sees several steps at once.
  bool OnVersion(Micros now, Version version) {
    if (version_ == version) return false;
    if (version_ && version > *version_ && !is_disturbed_)
      Take((now - since_) / static_cast<int64_t>(version.value() - version_->value()));
    is_disturbed_ = !version_;  // the current step had begun before
    version_ = version;
    since_ = now;
    return true;
  }
  // The current step does not count: there was a new view, or a worker needed help.
  void Disturb() { is_disturbed_ = true; }

  // None before one step has been measured.
  std::optional<Micros> usual() const { return usual_; }
  // How long to wait for others; none before one step has been measured.
  std::optional<Micros> patience() const {
    if (!usual_) return std::nullopt;
    return std::max(kPatienceSteps * *usual_, kPatienceMin);
  }

 private:
  void Take(Micros time) { usual_ = usual_ ? *usual_ + (time - *usual_) / kMemorySteps : time; }

  std::optional<Version> version_;
  Micros since_{0};
  bool is_disturbed_ = false;
  std::optional<Micros> usual_;
};

class Helping : SessionPart {
 public:
  // All outlive it.
  Helping(const SessionPart& part, const Lifecycle& lifecycle, Steps& steps, Questions& questions)
      : SessionPart(part), lifecycle_(lifecycle), steps_(steps), questions_(questions) {}

  void EnterView() {
    clock_.Disturb();
    Rest();
  }
  // The versions that are known everywhere may have changed.
  void OnVersions(Micros now) {
    if (clock_.OnVersion(now, versions_.everywhere())) Rest();
  }
  // All primaries have answered.
  void OnAnswered(Micros now);
  void Tick(Micros now);
  Micros NextDeadline() const { return !questions_.is_open() && IsWaiting() ? help_at_ : kNever; }

  // How long a step usually takes.
  const StepClock& clock() const { return clock_; }

 private:
  bool IsIdle() const;
  bool IsWaiting() const;
  void Rest() {
    is_helping_ = false;
    help_at_ = kNever;
  }
  std::vector<MicroBatch> Missing(Step step) const;
  bool IsForItsVerifier(Step step, MicroBatch m) const;
  size_t Offset(size_t count) const;

  const Lifecycle& lifecycle_;
  Steps& steps_;
  Questions& questions_;
  StepClock clock_;
  Micros help_at_ = kNever;  // when we have waited long enough; kNever while that is not known
  bool is_helping_ = false;  // the questions and the work under way are for stragglers
};

}  // namespace pando
