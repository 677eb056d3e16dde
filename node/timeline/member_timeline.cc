#include "node/timeline/member_timeline.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <array>
#include <filesystem>
#include <thread>
#include <utility>
#include <variant>

#include "common/clock.h"
#include "job/job_file.h"
#include "net/scheduler_client.h"
#include "net/stop_flag.h"
#include "node/remote_files.h"
#include "node/timeline/process_timeline.h"
#include "run/run_folder.h"
#include "scheduler/run_status.h"

namespace pando {
namespace {

constexpr int kRoundsPerMeasure = 8;
constexpr Micros kMeasureInterval = std::chrono::seconds(10);  // clocks drift some 0.1 ms meanwhile
// A longer round trip does not measure the clock: the scheduler is away.
constexpr Micros kRoundTripMax = std::chrono::seconds(1);

// Returns the scheduler's time in a status report, in nanoseconds; none if it has none.
std::optional<int64_t> ClockIn(const Message& answer) {
  const auto* report = std::get_if<StatusReport>(&answer);
  if (report == nullptr) return std::nullopt;
  const Result<RunStatus> status = ParseStatus(report->json);
  if (!status.ok() || !status->clock_us) return std::nullopt;
  return std::chrono::nanoseconds(Micros(*status->clock_us)).count();
}

}  // namespace

// ClockProbe measures now and then how far the scheduler's clock is ahead of ours, and records it
// in the timeline, so that the timelines of several machines can be aligned (run/timeline_trace).
// It asks for the run's status, which has the scheduler's time. The shortest of several round trips
// counts; its error is at most half of it.
// Threads: it starts one, which uses all other members. Owns: a connection to the scheduler.
class MemberTimeline::ClockProbe {
 public:
  // `context` and `timeline` outlive it.
  ClockProbe(ZmqContext& context, std::string scheduler_endpoint, Timeline& timeline);
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
  TimelineTrack& track_;
  const TimelineNameId name_;
  StopFlag stop_;
  std::thread thread_;
};

MemberTimeline::MemberTimeline(ZmqContext& context, const Membership& membership, Role role)
    : context_(context), membership_(membership) {
  if (membership.job.timeline.empty()) return;
  if (!SharesRunFolder(membership)) folder_.emplace();
  const std::string folder =
      folder_ ? folder_->path() : RunFolder::Open(RunDirFor(membership)).TimelinePath();
  timeline_ =
      OpenTimeline(membership.job, folder, fmt::format("{} {}", EnumName(role), membership.rank),
                   membership.self.incarnation.value());
  if (timeline_ == nullptr) return;
  clock_ = std::make_unique<ClockProbe>(context, membership.scheduler_endpoint, *timeline_);
}

MemberTimeline::~MemberTimeline() = default;

void MemberTimeline::Close(int stop_fd) const {
  WarnOfLost(timeline_.get());
  if (timeline_ == nullptr || !folder_) return;
  const Status sent = Send(stop_fd);
  if (!sent.ok()) spdlog::warn("the timeline lacks this process: {}", sent.message());
}

Status MemberTimeline::Send(int stop_fd) const {
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<RunFiles> files,
                         RemoteFiles::Dial({.context = context_,
                                            .membership = membership_,
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

// ---- the scheduler's clock ----------------------------------------------------------------------

MemberTimeline::ClockProbe::ClockProbe(ZmqContext& context, std::string scheduler_endpoint,
                                       Timeline& timeline)
    : context_(context),
      endpoint_(std::move(scheduler_endpoint)),
      track_(timeline.OpenTrack("clock")),
      name_(timeline.Name({"ahead", "clock", "round_trip_us"})),
      thread_([this] { Main(); }) {}

MemberTimeline::ClockProbe::~ClockProbe() {
  stop_.Request();
  thread_.join();
}

// An answer that comes too late is never taken for the answer to a later question, which uses
// another connection.
void MemberTimeline::ClockProbe::Main() {
  while (!stop_.is_requested()) {
    SchedulerClient client(context_, {.repeat_interval = 2 * kRoundTripMax, .on_warning = {}});
    if (!client.Dial(endpoint_).ok()) return;
    MeasureOften(client);
  }
}

void MemberTimeline::ClockProbe::MeasureOften(SchedulerClient& client) {
  while (Measure(client)) {
    if (!Pause(client, SteadyNow() + kMeasureInterval)) return;
  }
}

bool MemberTimeline::ClockProbe::Measure(SchedulerClient& client) {
  Reading best;
  for (int round = 0; round < kRoundsPerMeasure; ++round) {
    if (!Ask(client, &best)) return false;
  }
  track_.Add({.begin_ns = best.at_ns,
              .duration_ns = best.ahead_ns,
              .name = name_.value(),
              .number = static_cast<uint32_t>(best.round_trip_ns / 1000),
              .kind = TimelineKind::kClock});
  return true;
}

bool MemberTimeline::ClockProbe::Ask(SchedulerClient& client, Reading* best) {
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
bool MemberTimeline::ClockProbe::Pause(SchedulerClient& client, Micros until) {
  const std::array fds{stop_.fd()};
  while (!stop_.is_requested() && SteadyNow() < until) client.Wait(until, fds);
  return !stop_.is_requested();
}

}  // namespace pando
