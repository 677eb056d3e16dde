#include "node/scheduler_link.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "common/clock.h"
#include "common/endpoint.h"
#include "scheduler/run_status.h"

namespace pando {
namespace {

constexpr Micros kAskBeforeBegin = std::chrono::milliseconds(50);
// How often the schedulers of a run are asked for. An answer grows with the members.
constexpr Micros kFollowInterval = std::chrono::seconds(2);
constexpr Micros kFollowIntervalPerMember = std::chrono::milliseconds(20);

}  // namespace

SchedulerLink::SchedulerLink(std::string endpoint, Micros poll_interval, const Keys& keys)
    : endpoint_(std::move(endpoint)),
      poll_interval_(poll_interval),
      context_(keys),
      client_(context_, {}) {}

SchedulerLink::~SchedulerLink() {
  stop_.Request();
  if (thread_.joinable()) thread_.join();
}

Status SchedulerLink::Start() {
  PANDO_RETURN_IF_ERROR(client_.Dial(endpoint_));
  thread_ = std::thread([this] { Run(); });
  return Status();
}

void SchedulerLink::Tell(FaultNote note) { std::ignore = notes_.Push(std::move(note)); }

ReportedProgress SchedulerLink::progress() const { return {has_begun_.load(), Step(step_.load())}; }

std::string SchedulerLink::endpoints() const {
  const std::vector<std::string> given = SplitEndpoints(endpoint_);
  std::string all = endpoint_;
  for (const std::string& known : context_.schedulers().endpoints()) {
    if (std::ranges::find(given, known) == given.end()) all += "," + known;
  }
  return all;
}

void SchedulerLink::Run() {
  const std::array<int, 3> fds = {stop_.fd(), notes_.fd(), interval_changed_.fd()};
  while (!stop_.is_requested()) {
    interval_changed_.Clear();
    for (FaultNote& note : notes_.Drain()) {
      note.number = next_number_++;
      // An absent scheduler cannot fill our memory: beyond the client's bound notes are dropped.
      std::ignore = client_.Ask(std::move(note));
    }
    while (std::optional<Message> answer = client_.Poll()) {
      const auto* report = std::get_if<StatusReport>(&*answer);
      if (report == nullptr) continue;
      is_asking_ = false;
      HearStatus(report->json);
    }
    client_.Wait(AskWhenDue(SteadyNow()), fds);
  }
}

// Returns when the next question is due. The client repeats unanswered ones.
Micros SchedulerLink::AskWhenDue(Micros now) {
  const Micros interval =
      has_begun_ ? std::min(poll_interval_.load(), follow_interval_) : kAskBeforeBegin;
  if (interval == kNever || is_asking_) return kNever;
  if (now < ask_at_) return ask_at_;
  is_asking_ = client_.Ask(StatusRequest{});
  ask_at_ = now + interval;
  return is_asking_ ? kNever : ask_at_;
}

void SchedulerLink::HearStatus(const std::string& json) {
  const Result<RunStatus> status = ParseStatus(json);
  if (!status.ok()) return;
  if (status->schedulers) Follow(*status->schedulers, status->nodes.size());
  const bool begins = !has_begun_ && status->phase != "gathering";
  if (begins) has_begun_ = true;
  if (step_.exchange(status->step) != status->step || begins) changed_.Raise();
}

// The transport dials the schedulers that the context knows.
void SchedulerLink::Follow(const std::vector<SchedulerPlace>& schedulers, size_t member_count) {
  const std::string before = endpoints();
  context_.schedulers().Learn(EndpointsFor(schedulers));
  if (endpoints() != before) spdlog::info("the run's schedulers listen at {}", endpoints());
  follow_interval_ =
      std::max(kFollowInterval, kFollowIntervalPerMember * static_cast<Micros::rep>(member_count));
}

}  // namespace pando
