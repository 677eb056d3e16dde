#include "node/scheduler_link.h"

#include <array>
#include <tuple>
#include <utility>

#include "common/clock.h"
#include "scheduler/run_status.h"

namespace pando {
namespace {

constexpr Micros kAskBeforeBegin = std::chrono::milliseconds(50);

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
  const Micros interval = has_begun_ ? poll_interval_.load() : kAskBeforeBegin;
  if (interval == kNever || is_asking_) return kNever;
  if (now < ask_at_) return ask_at_;
  is_asking_ = client_.Ask(StatusRequest{});
  ask_at_ = now + interval;
  return is_asking_ ? kNever : ask_at_;
}

void SchedulerLink::HearStatus(const std::string& json) {
  const Result<RunStatus> status = ParseStatus(json);
  if (!status.ok()) return;
  const bool begins = !has_begun_ && status->phase != "gathering";
  if (begins) has_begun_ = true;
  if (step_.exchange(status->step) != status->step || begins) changed_.Raise();
}

}  // namespace pando
