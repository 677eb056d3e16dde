#include "net/scheduler_client.h"

#include <algorithm>
#include <chrono>

#include <fmt/core.h>

#include "common/clock.h"
#include "common/system.h"
#include "net/address.h"

namespace pando {
namespace {

const PeerId kAnyScheduler{kSchedulerNode, Incarnation(), 0};
// The most requests that wait in the queue while the scheduler is away. Further ones are dropped
// and sent again later.
constexpr int kQueuedRequestsMax = 64;

bool IsInterim(const Message& answer) {
  const auto* reply = std::get_if<CommandReply>(&answer);
  return reply != nullptr && reply->outcome == CommandOutcome::kAccepted;
}

}  // namespace

// Returns the key of a request, or of the request that an answer closes.
std::optional<SchedulerClient::Key> SchedulerClient::KeyFor(const Message& message) {
  if (HoldsAny<StatusRequest, StatusReport>(message)) return Key{Kind::kStatus, 0};
  if (HoldsAny<Command, CommandReply>(message)) return Key{Kind::kCommand, 0};
  if (const auto* note = std::get_if<FaultNote>(&message))
    return Key{Kind::kFaultNote, note->number};
  if (const auto* ack = std::get_if<FaultNoteAck>(&message))
    return Key{Kind::kFaultNote, ack->number};
  return std::nullopt;
}

SchedulerClient::SchedulerClient(ZmqContext& context, Options options)
    : options_(std::move(options)),
      self_{kUnknownNode, NewIncarnation(), 0},
      transport_(context, self_,
                 {.linger_ms = 0,
                  .queued_messages_max = kQueuedRequestsMax,
                  .on_warning = options_.on_warning}) {}

Status SchedulerClient::Dial(const std::string& endpoint) {
  return transport_.Dial(kAnyScheduler, endpoint);
}

bool SchedulerClient::Ask(Message request) {
  const std::optional<Key> found = KeyFor(request);
  PANDO_CHECK(found && MayBeStranger(RowFor(request).sender));
  const Key key = *found;
  if (open_.size() >= kOpenRequestsMax && !open_.contains(key)) return false;
  Send(request);
  open_.insert_or_assign(key, Open{std::move(request), SteadyNow() + options_.repeat_interval});
  return true;
}

std::optional<Message> SchedulerClient::Poll() {
  RepeatDue(SteadyNow());
  Envelope envelope;
  while (transport_.Receive(&envelope)) {
    if (Close(envelope.message)) return std::move(envelope.message);
  }
  return std::nullopt;
}

void SchedulerClient::Wait(Micros deadline, std::span<const int> fds) {
  transport_.Wait(std::min(deadline, NextDeadline()), fds);
}

Micros SchedulerClient::NextDeadline() const {
  Micros next = kNever;
  for (const auto& [key, open] : open_) next = std::min(next, open.due);
  return next;
}

void SchedulerClient::RepeatDue(Micros now) {
  for (auto& [key, open] : open_) {
    if (now < open.due) continue;
    Send(open.request);
    open.due = now + options_.repeat_interval;
  }
}

void SchedulerClient::Send(const Message& request) {
  transport_.Send({.sender = self_, .receiver = kAnyScheduler, .message = request});
}

// Returns whether the message answers an open request.
bool SchedulerClient::Close(const Message& answer) {
  if (!HasCore(RowFor(answer).handlers, Core::kClient)) return false;
  const auto it = open_.find(*KeyFor(answer));
  if (it == open_.end()) return false;
  if (!IsInterim(answer)) open_.erase(it);
  return true;
}

Result<std::string> RequestStatus(ZmqContext& context, const std::string& endpoint, Micros deadline,
                                  const std::string& next) {
  std::string last_warning;
  SchedulerClient client(
      context, {.on_warning = [&](const std::string& text) { last_warning = "; " + text; }});
  PANDO_RETURN_IF_ERROR(client.Dial(endpoint));
  PANDO_CHECK(client.Ask(StatusRequest{}));
  while (SteadyNow() < deadline) {
    client.Wait(deadline);
    if (std::optional<Message> answer = client.Poll())
      return std::get<StatusReport>(*std::move(answer)).json;
  }
  return Unavailable(fmt::format("no scheduler answered at {}{}: {}", endpoint, last_warning,
                                 ExplainSilence(endpoint, next, context.keys())));
}

Result<std::string> RequestCommand(ZmqContext& context, const std::string& endpoint,
                                   const Command& command, const CommandPatience& patience,
                                   const std::function<void(const std::string& text)>& on_said) {
  SchedulerClient client(context, {});
  PANDO_RETURN_IF_ERROR(client.Dial(endpoint));
  const Micros start = SteadyNow();
  PANDO_CHECK(client.Ask(command));
  std::string said;
  const auto longest = [&] { return said.empty() ? patience.answer_max : patience.done_max; };
  const auto due = [&] { return start + longest(); };
  while (SteadyNow() < due()) {
    while (std::optional<Message> answer = client.Poll()) {
      const auto* reply = std::get_if<CommandReply>(&*answer);
      if (reply == nullptr) continue;
      if (reply->outcome == CommandOutcome::kRefused) return InvalidArgument(reply->text);
      if (reply->outcome == CommandOutcome::kDone) return reply->text;
      if (std::exchange(said, reply->text) != reply->text) on_said(said);
    }
    client.Wait(due());
  }
  // The error names the caller's whole limit.
  const double seconds = std::chrono::duration<double>(longest()).count();
  if (said.empty()) {
    return Unavailable(
        fmt::format("no scheduler answered at {} within {:g} s: {}", endpoint, seconds,
                    ExplainSilence(endpoint, patience.after_silence, context.keys())));
  }
  return Unavailable(fmt::format("not done within {:g} s (the scheduler continues): {}; {}",
                                 seconds, said, patience.after_slowness));
}

}  // namespace pando
