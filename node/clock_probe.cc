#include "node/clock_probe.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/clock.h"

namespace pando {
namespace {

constexpr int kRoundsPerMeasure = 8;
constexpr Micros kMeasureInterval = std::chrono::seconds(10);  // clocks drift some 0.1 ms meanwhile
// A round trip that takes so long tells nothing; the scheduler is away.
constexpr Micros kRoundTripMax = std::chrono::seconds(1);

// What a status report says the time is there; none where it does not.
std::optional<int64_t> ClockIn(const Message& answer) {
  const auto* report = std::get_if<StatusReport>(&answer);
  if (report == nullptr) return std::nullopt;
  const auto status = nlohmann::json::parse(report->json, nullptr, /*allow_exceptions=*/false);
  if (!status.is_object() || !status.contains("clock_us")) return std::nullopt;
  const auto& clock_us = status["clock_us"];
  if (!clock_us.is_number_integer()) return std::nullopt;
  return 1000 * clock_us.get<int64_t>();
}

}  // namespace

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

// What a connection was not answered in time is never taken for the answer to a later question:
// that goes through another one.
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

// False if it is over.
bool ClockProbe::Pause(SchedulerClient& client, Micros until) {
  const std::array fds{stop_.fd()};
  while (!stop_.is_requested() && SteadyNow() < until) client.Wait(until, fds);
  return !stop_.is_requested();
}

}  // namespace pando
