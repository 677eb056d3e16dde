#include "node/process_timeline.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <utility>
#include <variant>

#include "common/clock.h"
#include "common/system.h"
#include "job/job_file.h"
#include "node/remote_files.h"
#include "run/run_folder.h"
#include "scheduler/run_status.h"

namespace pando {
namespace {

int64_t Nanoseconds(Micros time) { return std::chrono::nanoseconds(time).count(); }

// Bounds the replications that a demoted primary never committed: the oldest are dropped.
constexpr size_t kReplicatingMax = 4096;

constexpr int kRoundsPerMeasure = 8;
constexpr Micros kMeasureInterval = std::chrono::seconds(10);  // clocks drift some 0.1 ms meanwhile
// A longer round trip does not measure the clock: the scheduler is away.
constexpr Micros kRoundTripMax = std::chrono::seconds(1);

// Returns the scheduler's time in a status report; none if it has none.
std::optional<int64_t> ClockIn(const Message& answer) {
  const auto* report = std::get_if<StatusReport>(&answer);
  if (report == nullptr) return std::nullopt;
  const Result<RunStatus> status = ParseStatus(report->json);
  if (!status.ok() || !status->clock_us) return std::nullopt;
  return Nanoseconds(Micros(*status->clock_us));
}

}  // namespace

std::unique_ptr<Timeline> OpenTimeline(const Job& job, const std::string& folder,
                                       const std::string& process, uint64_t incarnation) {
  if (job.timeline.empty()) return nullptr;
  Result<std::unique_ptr<Timeline>> timeline =
      Timeline::Create({.folder = folder,
                        .process = process,
                        .incarnation = incarnation,
                        .host = HostName(),
                        .steps = ParseStepRange(job.timeline_steps).value_or(StepRange{})});
  if (timeline.ok()) return *std::move(timeline);
  spdlog::warn("no timeline is kept here: {}", timeline.status().message());
  return nullptr;
}

void WarnOfLost(const Timeline* timeline) {
  if (timeline == nullptr || timeline->lost_count() == 0) return;
  spdlog::warn(
      "the timeline lacks the last {} spans of this process: its file is full, or the disk is; "
      "give fewer steps with --timeline-steps A:B",
      timeline->lost_count());
}

MemberTimeline::MemberTimeline(const Membership& membership, Role role) : membership_(membership) {
  if (membership.job.timeline.empty()) return;
  if (!SharesRunFolder(membership)) folder_.emplace();
  const std::string folder =
      folder_ ? folder_->path() : RunFolder::Open(RunDirFor(membership)).TimelinePath();
  timeline_ =
      OpenTimeline(membership.job, folder, fmt::format("{} {}", EnumName(role), membership.rank),
                   membership.self.incarnation.value());
}

void MemberTimeline::Close(ZmqContext& context, const std::string& scheduler_endpoint,
                           int stop_fd) const {
  WarnOfLost(timeline_.get());
  if (timeline_ == nullptr || !folder_) return;
  const Status sent = Send(context, scheduler_endpoint, stop_fd);
  if (!sent.ok()) spdlog::warn("the timeline lacks this process: {}", sent.message());
}

Status MemberTimeline::Send(ZmqContext& context, const std::string& scheduler_endpoint,
                            int stop_fd) const {
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<RunFiles> files,
                         RemoteFiles::Dial({.context = context,
                                            .membership = membership_,
                                            .scheduler_endpoint = scheduler_endpoint,
                                            .lane = FilesLane::kTimeline,
                                            .folder = "timeline",
                                            .stop_fd = stop_fd,
                                            .patience = kLastFilesPatience}));
  std::error_code ignored;  // then there is no file
  for (const auto& entry : std::filesystem::directory_iterator(folder_->path(), ignored)) {
    PANDO_ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(entry.path().string()));
    PANDO_RETURN_IF_ERROR(
        files->Store(entry.path().filename().string(), {std::as_bytes(std::span(bytes))}));
  }
  return Status();
}

// ---- sent messages ------------------------------------------------------------------------------

TimelineSendProbe::TimelineSendProbe(Timeline* timeline, TimelineTrack* track)
    : timeline_(timeline), track_(track) {
  if (timeline == nullptr) return;
  push_ = timeline->Name({"push", "push", "shard"});
  reply_ = timeline->Name({"reply", "pull", "shard"});
  replicate_ = timeline->Name({"replicate", "replicate", "shard"});
}

// Other messages have no items.
void TimelineSendProbe::BeginSend(const Message& message) {
  items_.clear();
  const auto take = [this](TimelineNameId name, const auto& item, Step step) {
    name_ = name;
    items_.push_back({item.shard, step, item.payload.size_bytes()});
  };
  if (const auto* push = std::get_if<Push>(&message)) {
    for (const PushItem& item : push->items) take(push_, item, item.step);
  } else if (const auto* params = std::get_if<Params>(&message)) {
    for (const ParamsItem& item : params->items) take(reply_, item, StepReading(item.version));
  } else if (const auto* root = std::get_if<Root>(&message)) {
    for (const RootItem& item : root->items) take(replicate_, item, item.step);
  }
  begin_ns_ = TimelineNow();
}

void TimelineSendProbe::EndSend() {
  if (items_.empty()) return;
  const int64_t end_ns = TimelineNow();
  double all_bytes = 0;
  for (const Item& item : items_) all_bytes += static_cast<double>(item.bytes);
  double bytes = 0;
  int64_t from_ns = begin_ns_;
  for (const Item& item : items_) {
    bytes += static_cast<double>(item.bytes);
    const double share = all_bytes == 0 ? 1 : bytes / all_bytes;
    const int64_t to_ns =
        begin_ns_ + static_cast<int64_t>(share * static_cast<double>(end_ns - begin_ns_));
    if (timeline_->Wants(item.step))
      track_->AddSpan(name_, from_ns, to_ns, item.step, item.shard.value());
    from_ns = to_ns;
  }
}

// ---- a lane -------------------------------------------------------------------------------------

TimelineLaneProbe::TimelineLaneProbe(Timeline& timeline, TimelineTrack& track,
                                     TimelineTrack& replicating)
    : timeline_(timeline),
      track_(track),
      replicating_(replicating),
      work_names_{timeline.Name({"aggregate", "aggregate", "shard"}),
                  timeline.Name({"update", "update", "shard"}),
                  timeline.Name({"commit", "commit", "shard"})},
      replication_(timeline.Name({"root to commit", "replicate", "shard"})) {}

void TimelineLaneProbe::Begin(LaneWork work, ShardId shard, Step step) {
  work_ = work;
  shard_ = shard;
  step_ = step;
  begin_ns_ = TimelineNow();
}

void TimelineLaneProbe::End() {
  if (!timeline_.Wants(step_)) return;
  track_.AddSpan(work_names_[static_cast<size_t>(work_)], begin_ns_, TimelineNow(), step_,
                 shard_.value());
}

void TimelineLaneProbe::OnReplicating(ShardId shard, Step step) {
  if (!timeline_.Wants(step)) return;
  if (since_.size() == kReplicatingMax) since_.clear();
  since_[{shard, step}] = TimelineNow();
}

void TimelineLaneProbe::OnCommitted(ShardId shard, Step step) {
  const auto since = since_.find({shard, step});
  if (since == since_.end()) return;
  replicating_.Add({.begin_ns = since->second,
                    .duration_ns = TimelineNow() - since->second,
                    .step = step.value(),
                    .name = replication_.value(),
                    .number = shard.value(),
                    .kind = TimelineKind::kFlow});
  since_.erase(since);
}

// ---- the scheduler ------------------------------------------------------------------------------

TimelineOfRun::TimelineOfRun(Timeline* timeline, Micros start)
    : timeline_(timeline), start_(start) {
  if (timeline == nullptr) return;
  track_ = &timeline->OpenTrack("run");
  step_ = timeline->Name({"step", "step", ""});
}

void TimelineOfRun::Mark(int64_t at_ns, const std::string& name, const std::string& text) {
  track_->Add({.begin_ns = at_ns,
               .step = next_.value(),
               .name = timeline_->Name({name, "run", ""}).value(),
               .number = timeline_->Name({text, "text", ""}).value(),
               .kind = TimelineKind::kMark});
}

void TimelineOfRun::OnEvent(Micros now, const RunEvent& event) {
  if (track_ == nullptr) return;
  Mark(Nanoseconds(now), event.name, event.text);
  if (event.name != "training" && event.name != "resumed" && event.name != "rollback") return;
  AddSteps();
  step_began_ = now;
}

void TimelineOfRun::OnStep(Micros now, Step step) {
  if (track_ == nullptr) return;
  if (now != reported_at_) AddSteps();
  reported_at_ = now;
  reported_.push_back(step);
  next_ = NextStep(step);
}

// Servers report their progress now and then. Steps that arrive together share equally the time
// since the last report.
void TimelineOfRun::AddSteps() {
  if (reported_.empty()) return;
  const int64_t began = Nanoseconds(step_began_.value_or(reported_at_));
  const int64_t span = Nanoseconds(reported_at_) - began;
  const auto count = static_cast<int64_t>(reported_.size());
  for (int64_t i = 0; i < count; ++i) {
    const Step step = reported_[static_cast<size_t>(i)];
    if (timeline_->Wants(step))
      track_->AddSpan(step_, began + i * span / count, began + (i + 1) * span / count, step, 0);
  }
  step_began_ = reported_at_;
  reported_.clear();
}

void TimelineOfRun::OnEvaluation(Micros now, Version version, const std::string& text) {
  if (track_ == nullptr) return;
  Mark(Nanoseconds(now), "evaluation", fmt::format("version {}: {}", version.value(), text));
}

// Called each time that more is known about the fault.
void TimelineOfRun::OnFault(const FaultRecord& fault) {
  if (track_ == nullptr) return;
  FaultRecord& known = faults_[fault.id];
  const auto mark = [&](double was_ms, double ms, const char* what, const std::string& text) {
    if (was_ms >= 0 || ms < 0) return;
    Mark(Nanoseconds(start_) + static_cast<int64_t>(ms * 1e6), what,
         fmt::format("{} {}{}", fault.action, fault.target, text));
  };
  mark(known.injected_ms, fault.injected_ms, "fault injected", "");
  mark(known.detected_ms, fault.detected_ms, "fault noticed", " by " + fault.detected_by);
  mark(known.recovered_ms, fault.recovered_ms, "fault recovered", "");
  known = fault;
}

// ---- the scheduler's clock ----------------------------------------------------------------------

ClockProbe::ClockProbe(ZmqContext& context, std::string scheduler_endpoint, Timeline* timeline)
    : context_(context), endpoint_(std::move(scheduler_endpoint)), timeline_(timeline) {
  if (timeline == nullptr) return;
  track_ = &timeline->OpenTrack("clock");
  name_ = timeline->Name({"ahead", "clock", "round_trip_us"});
  thread_ = std::thread([this] { Main(); });
}

ClockProbe::~ClockProbe() {
  stop_.Request();
  if (thread_.joinable()) thread_.join();
}

// An answer that comes too late is never taken for the answer to a later question, which uses
// another connection.
void ClockProbe::Main() {
  while (!stop_.is_requested()) {
    SchedulerClient client(context_, {.repeat_interval = 2 * kRoundTripMax, .on_warning = {}});
    if (!client.Dial(endpoint_).ok()) return;
    MeasureOften(client);
  }
}

void ClockProbe::MeasureOften(SchedulerClient& client) {
  while (Measure(client)) {
    if (!Pause(client, SteadyNow() + kMeasureInterval)) return;
  }
}

bool ClockProbe::Measure(SchedulerClient& client) {
  Reading best;
  for (int round = 0; round < kRoundsPerMeasure; ++round) {
    if (!Ask(client, &best)) return false;
  }
  track_->Add({.begin_ns = best.at_ns,
               .duration_ns = best.ahead_ns,
               .name = name_.value(),
               .number = static_cast<uint32_t>(best.round_trip_ns / 1000),
               .kind = TimelineKind::kClock});
  return true;
}

bool ClockProbe::Ask(SchedulerClient& client, Reading* best) {
  const std::array fds{stop_.fd()};
  const Micros deadline = SteadyNow() + kRoundTripMax;
  const int64_t asked_ns = TimelineNow();
  if (!client.Ask(StatusRequest{})) return false;
  while (!stop_.is_requested() && SteadyNow() < deadline) {
    client.Wait(deadline, fds);
    const std::optional<Message> answer = client.Poll();
    const int64_t now_ns = TimelineNow();
    const std::optional<int64_t> clock_ns = answer ? ClockIn(*answer) : std::nullopt;
    if (!clock_ns) continue;
    const Reading reading{.at_ns = asked_ns + (now_ns - asked_ns) / 2,
                          .ahead_ns = *clock_ns - (asked_ns + (now_ns - asked_ns) / 2),
                          .round_trip_ns = now_ns - asked_ns};
    if (reading.round_trip_ns < best->round_trip_ns) *best = reading;
    return true;
  }
  return false;
}

// Returns false if the probe must end.
bool ClockProbe::Pause(SchedulerClient& client, Micros until) {
  const std::array fds{stop_.fd()};
  while (!stop_.is_requested() && SteadyNow() < until) client.Wait(until, fds);
  return !stop_.is_requested();
}

}  // namespace pando
