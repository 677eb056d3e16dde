// A lane's requests and reports to the scheduler: LaneLife, ScalarBlocks, ProgressReport, and
// Reports, which repeats the reports of other parts. All are parts of the lane. Threads:
// none.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/lane_limits.h"
#include "server/replicas.h"

namespace pando {

// LaneLife: the begin and end of a lane. Lane 0 tells the scheduler that its process is ready,
// until a view names it. The scheduler ends the job, or this life of the lane.
class LaneLife {
 public:
  // `kind` is for the Ready. `member` outlives the part.
  LaneLife(ViewMember& member, std::string kind) : member_(member), kind_(std::move(kind)) {}

  void OnStop(const Envelope& envelope, const Stop& stop) {
    member_.Send(envelope.sender, Bye{});
    if (!stop_) stop_ = stop;
  }
  void OnRefused(const Refused& refused) {
    if (stop_) return;
    refusal_ = refused.kind;
    stop_ = Stop{StopReason::kFailed, refused.reason};
  }

  bool finished() const { return stop_.has_value(); }
  const Stop& stop() const { return *stop_; }  // REQUIRES: finished()
  const std::optional<RefusalKind>& refusal() const { return refusal_; }

  void Tick(Micros now) {
    if (now < NextDeadline()) return;
    member_.SendToScheduler(Ready{.kind = kind_});
    ready_at_ = now + kRetryInterval;
  }
  Micros NextDeadline() const { return is_joining() ? ready_at_ : kNever; }

 private:
  bool is_joining() const { return member_.self().lane == 0 && !member_.has_view(); }

  ViewMember& member_;
  const std::string kind_;
  Micros ready_at_{0};  // when to repeat Ready
  std::optional<Stop> stop_;
  std::optional<RefusalKind> refusal_;
};

// ScalarBlocks: the optimizer's scalars, which only the scheduler computes (P36), in blocks of
// kScalarsPerBlock steps. A lane asks for the current and the next block, so that steps go on for a
// while without a scheduler (P28). Owns: at most two blocks.
class ScalarBlocks : LanePart {
 public:
  using LanePart::LanePart;

  void OnScalars(const Scalars& scalars);
  // Returns null while they are not known.
  const StepScalars* Find(Step step) const;

  // A new generation begins. Scalars are the same in every generation. But after an early stop the
  // scheduler may have to decide the scalars of the steps behind it again (P32), so those blocks
  // are then dropped.
  void Clear() {
    if (plan_.job.early_stop_patience != 0) blocks_.clear();
  }
  void Tick(Micros now);
  Micros NextDeadline() const { return LacksAny() ? ask_at_ : kNever; }

 private:
  bool IsWanted(uint64_t block) const;
  bool LacksAny() const;

  std::map<uint64_t, std::vector<StepScalars>> blocks_;  // by index of block
  Micros ask_at_{0};
};

// ProgressReport sends the committed version and the metrics of each step until the scheduler knows
// them. Owns: the metric rows that the scheduler may not know.
class ProgressReport : LanePart {
 public:
  using LanePart::LanePart;

  // Returns whether the scheduler knows more rows than this lane knew of.
  bool OnProgressAck(const Envelope& envelope, const ProgressAck& ack);
  // The newest version of a shard was made. Backups also note the metric shard's rows, so that no
  // row is lost with a primary.
  void NoteMetrics(const Shard& shard);
  // The scheduler knows these rows. Primaries tell their backups (Root::first_row).
  void ForgetRowsBelow(Step step) {
    known_row_ = std::max(known_row_, step);
    std::erase_if(rows_, [&](const StepMetrics& row) { return row.step < known_row_; });
  }
  Step known_row() const { return known_row_; }  // rows below it are known to the scheduler

  void EnterView(Micros now, const Replicas::Changes& changes);
  // A new generation begins.
  void Clear() {
    rows_.clear();
    known_row_ = Step(0);
  }
  void Tick(Micros now);
  Micros NextDeadline() const { return HasNews() ? report_at_ : kNever; }

 private:
  size_t ReportableRows() const;
  bool HasNews() const {
    if (!member_.has_view() || replicas_.is_restoring()) return false;
    return reported_ != replicas_.committed() || ReportableRows() != 0;
  }

  std::vector<StepMetrics> rows_;  // of versions made
  Step known_row_;
  std::optional<Version> reported_;  // under this view: acknowledged
  std::optional<Version> sent_;      // under this view: last sent
  Micros report_at_{0};
};

// ReportClock says when the next reports are due. The sources share it.
class ReportClock {
 public:
  // There is news: reports are due as soon as the last ones are kProgressInterval old.
  void SpeakSoon(Micros now) { speak_at_ = std::min(speak_at_, std::max(now, silent_until_)); }
  // An unanswered report may have waited for this event, so it is repeated soon.
  void Hasten(Micros now) {
    if (speak_at_ != kNever) SpeakSoon(now);
  }
  bool IsDue(Micros now) const { return now >= speak_at_; }
  void OnSpoken(Micros now, bool has_more) {
    silent_until_ = now + kProgressInterval;
    speak_at_ = has_more ? now + kRetryInterval : kNever;
  }
  Micros NextDeadline() const { return speak_at_; }

 private:
  Micros speak_at_ = kNever;
  Micros silent_until_{0};  // reports are gathered until then
};

class ReportSource {
 public:
  virtual ~ReportSource() = default;
  // Appends the reports that the scheduler has not answered. Returns whether any are unanswered,
  // even if they wait for a later report.
  virtual bool AddReports(std::vector<Message>* reports) const = 0;
};

// Reports repeats the reports of a lane's parts to the scheduler until they are answered. Each part
// keeps its facts and offers them as a ReportSource. Owns: whether the process was asked to leave.
class Reports {
 public:
  // All arguments outlive the part. Reports are sent in the sources' order.
  Reports(ViewMember& member, ReportClock& clock, std::vector<const ReportSource*> sources)
      : member_(member), clock_(clock), sources_(std::move(sources)) {}

  // The process was asked to leave: sends Leave until Stop.
  void StartLeaving(Micros now) {
    is_leaving_ = true;
    clock_.SpeakSoon(now);
  }
  void Tick(Micros now);
  Micros NextDeadline() const { return clock_.NextDeadline(); }

 private:
  ViewMember& member_;
  ReportClock& clock_;
  const std::vector<const ReportSource*> sources_;
  bool is_leaving_ = false;
};

}  // namespace pando
