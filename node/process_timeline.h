// A process's timeline is its record of itself in RUN_DIR/timeline, if the job asks for one. This
// header has what opens the file and what records the messages that a core sends, a lane's work,
// the events that the scheduler reports to its observer, and the scheduler's clock. The processes
// use it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/timeline/timeline.h"
#include "files/temporary_folder.h"
#include "net/scheduler_client.h"
#include "net/stop_flag.h"
#include "node/node_join.h"
#include "plan/job.h"
#include "proto/view_member.h"
#include "scheduler/journaled_outbox.h"
#include "server/lane_probe.h"

namespace pando {

// Returns null if the job asks for no timeline. Also returns null, with a warning, if the file
// cannot be created, since the run does not depend on it. `folder` is RunFolder::TimelinePath of
// the run's folder on this machine.
std::unique_ptr<Timeline> OpenTimeline(const Job& job, const std::string& folder,
                                       const std::string& process, uint64_t incarnation);
// Warns, when the process is done, if the file could not hold all records.
void WarnOfLost(const Timeline* timeline);

// MemberTimeline: the timeline of a server or worker. On a machine that does not share the run
// folder it is kept in a temporary folder and sent to the scheduler at the end (P45). If the
// process is killed there, it is lost.
class MemberTimeline {
 public:
  // `membership` outlives it.
  MemberTimeline(const Membership& membership, Role role);
  Timeline* get() const { return timeline_.get(); }  // null: the job asks for none
  TimelineTrack* OpenTrack(const std::string& name) const {
    return timeline_ ? &timeline_->OpenTrack(name) : nullptr;
  }
  // Call it at the process's end. Waits some seconds for the scheduler, or for `stop_fd`.
  void Close(ZmqContext& context, const std::string& scheduler_endpoint, int stop_fd) const;

 private:
  Status Send(ZmqContext& context, const std::string& scheduler_endpoint, int stop_fd) const;

  const Membership& membership_;
  std::optional<TemporaryFolder> folder_;  // none: the run folder has it
  std::unique_ptr<Timeline> timeline_;
};

// TimelineSendProbe records when gradients (push), parameters (reply) and roots (replicate) are
// sent, shard by shard. The time of sending a message is divided by the items' bytes. Threads: one
// at a time, that of the track.
class TimelineSendProbe : public SendProbe {
 public:
  // Both outlive it, or are null.
  TimelineSendProbe(Timeline* timeline, TimelineTrack* track);
  SendProbe* get() { return timeline_ == nullptr ? nullptr : this; }  // null: the job asks for none
  void BeginSend(const Message& message) override;
  void EndSend() override;

 private:
  struct Item {
    ShardId shard;
    Step step;
    size_t bytes = 0;
  };
  Timeline* const timeline_;
  TimelineTrack* const track_;
  TimelineNameId push_, reply_, replicate_;
  // The current message. A message without items has no name.
  TimelineNameId name_;
  std::vector<Item> items_;
  int64_t begin_ns_ = 0;
};

// Threads: the lane's.
class TimelineLaneProbe : public LaneProbe {
 public:
  // Both outlive it. `replicating` takes the time from root to commit, in which the lane does other
  // work.
  TimelineLaneProbe(Timeline& timeline, TimelineTrack& track, TimelineTrack& replicating);
  void Begin(LaneWork work, ShardId shard, Step step) override;
  void End() override;
  void OnReplicating(ShardId shard, Step step) override;
  void OnCommitted(ShardId shard, Step step) override;

 private:
  const Timeline& timeline_;
  TimelineTrack& track_;
  TimelineTrack& replicating_;
  const std::array<TimelineNameId, 3> work_names_;  // by LaneWork
  const TimelineNameId replication_;
  LaneWork work_{};
  ShardId shard_;
  Step step_;
  int64_t begin_ns_ = 0;
  std::map<std::pair<ShardId, Step>, int64_t> since_;  // begun but not committed
};

// TimelineOfRun records the scheduler's part: steps, evaluations, and marks for views and faults.
// Threads: the scheduler core's.
class TimelineOfRun {
 public:
  // `timeline` may be null; otherwise it outlives this. `start` is the origin of a fault's times.
  TimelineOfRun(Timeline* timeline, Micros start);
  ~TimelineOfRun() { AddSteps(); }
  TimelineOfRun(const TimelineOfRun&) = delete;
  void OnEvent(Micros now, const RunEvent& event);
  void OnStep(Micros now, Step step);
  void OnEvaluation(Micros now, Version version, const std::string& text);
  void OnFault(const FaultRecord& fault);

 private:
  void Mark(int64_t at_ns, const std::string& name, const std::string& text);
  void AddSteps();

  Timeline* const timeline_;
  const Micros start_;
  TimelineTrack* track_ = nullptr;  // null: no timeline
  TimelineNameId step_;
  Step next_;  // the lowest step that is not complete
  std::optional<Micros> step_began_;
  std::vector<Step> reported_;  // at reported_at_, not in the track yet
  Micros reported_at_{0};
  std::map<uint64_t, FaultRecord> faults_;  // as they were marked
};

// ClockProbe measures now and then how far the scheduler's clock is ahead of ours, and records it
// in the process's timeline, so that the timelines of several machines can be aligned
// (run/timeline_trace). It asks for the run's status, which has the scheduler's time. The shortest
// of several round trips counts; its error is at most half of it.
// Threads: starts one, if there is a timeline. Owns: a connection to the scheduler.
class ClockProbe {
 public:
  // `context` and `timeline`, which may be null, outlive it.
  ClockProbe(ZmqContext& context, std::string scheduler_endpoint, Timeline* timeline);
  ~ClockProbe();
  ClockProbe(const ClockProbe&) = delete;

 private:
  struct Reading {
    int64_t at_ns = 0;  // on our clock, in the middle of the round trip
    int64_t ahead_ns = 0;
    int64_t round_trip_ns = INT64_MAX;
  };
  void Main();
  void MeasureOften(SchedulerClient& client);
  bool Measure(SchedulerClient& client);
  bool Ask(SchedulerClient& client, Reading* best);
  bool Pause(SchedulerClient& client, Micros until);

  ZmqContext& context_;
  const std::string endpoint_;
  Timeline* const timeline_;
  StopFlag stop_;
  TimelineTrack* track_ = nullptr;
  TimelineNameId name_;
  std::thread thread_;
};

}  // namespace pando
