#include "cli/scheduler_link.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "net/clock.h"
#include "net/incarnation.h"

namespace pando {
namespace {

constexpr Micros kTellAgain = std::chrono::milliseconds(200);
constexpr Micros kAskBeforeBegin = std::chrono::milliseconds(50);
// An away scheduler cannot fill our memory: beyond this the oldest are dropped.
constexpr size_t kNotesMax = 1024;
constexpr int kQueuedMessagesMax = 64;

const PeerId kScheduler{kSchedulerNode, Incarnation(), 0};  // whoever lives there

}  // namespace

SchedulerLink::SchedulerLink(std::string endpoint, Micros poll_interval)
    : endpoint_(std::move(endpoint)),
      poll_interval_(poll_interval),
      self_{kUnknownNode, NewIncarnation(), 0},
      transport_(context_, self_, {.linger_ms = 0, .queued_messages_max = kQueuedMessagesMax}) {}

SchedulerLink::~SchedulerLink() {
  stop_.Request();
  if (thread_.joinable()) thread_.join();
}

Status SchedulerLink::Start() {
  if (Status s = transport_.Dial(kScheduler, endpoint_); !s.ok()) return s;
  thread_ = std::thread([this] { Run(); });
  return Status();
}

void SchedulerLink::Tell(FaultNote note) { std::ignore = notes_.Push(std::move(note)); }

RunProgress SchedulerLink::progress() const { return {has_begun_.load(), Step(step_.load())}; }

void SchedulerLink::Run() {
  const std::array<int, 2> fds = {stop_.fd(), notes_.fd()};
  while (!stop_.is_requested()) {
    for (Envelope envelope; transport_.Receive(&envelope);) Hear(envelope);
    for (FaultNote& note : notes_.Drain()) {
      note.number = next_number_++;
      unacknowledged_.push_back({.note = std::move(note)});
      if (unacknowledged_.size() > kNotesMax) unacknowledged_.pop_front();
    }
    const Micros now = SteadyNow();
    TellDue(now);
    AskDue(now);
    Micros next = ask_at_;
    for (const Unacknowledged& item : unacknowledged_) next = std::min(next, item.tell_at);
    transport_.Wait(next, fds);
  }
}

void SchedulerLink::TellDue(Micros now) {
  for (Unacknowledged& item : unacknowledged_) {
    if (now < item.tell_at) continue;
    item.tell_at = now + kTellAgain;
    Send(item.note);
  }
}

void SchedulerLink::AskDue(Micros now) {
  if (now < ask_at_) return;
  const Micros interval = has_begun_ ? poll_interval_ : kAskBeforeBegin;
  ask_at_ = interval == kNever ? kNever : now + interval;
  if (ask_at_ != kNever) Send(StatusRequest{});
}

void SchedulerLink::Hear(const Envelope& envelope) {
  if (const auto* ack = std::get_if<FaultNoteAck>(&envelope.message)) {
    std::erase_if(unacknowledged_,
                  [&](const Unacknowledged& item) { return item.note.number == ack->number; });
  } else if (const auto* report = std::get_if<StatusReport>(&envelope.message)) {
    HearStatus(report->json);
  }
}

void SchedulerLink::HearStatus(const std::string& json) {
  const auto status = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!status.is_object()) return;
  const auto phase = status.find("phase");
  const auto step = status.find("step");
  if (phase == status.end() || step == status.end() || !step->is_number_unsigned()) return;
  const bool begins = !has_begun_ && *phase != "gathering";
  if (begins) has_begun_ = true;
  if (step_.exchange(step->get<uint64_t>()) != step->get<uint64_t>() || begins) changed_.Raise();
}

void SchedulerLink::Send(Message message) {
  transport_.Send({.sender = self_, .receiver = kScheduler, .message = std::move(message)});
}

}  // namespace pando
