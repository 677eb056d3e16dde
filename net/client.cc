#include "net/client.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/clock.h"
#include "net/incarnation.h"

namespace pando {
namespace {

const PeerId kWhoeverLeads{kSchedulerNode, Incarnation(), 0};
// Repeated requests that wait while the scheduler is away. Further ones are dropped and become due
// again.
constexpr int kQueuedRequestsMax = 64;

template <class T>
constexpr size_t kIndexOf = Message(std::in_place_type<T>).index();

uint64_t FaultNumber(const Message& message) {
  if (const auto* note = std::get_if<FaultNote>(&message)) return note->number;
  if (const auto* ack = std::get_if<FaultNoteAck>(&message)) return ack->number;
  return 0;
}

// The request that `message` answers, by its index in Message.
std::optional<size_t> AnsweredRequest(const Message& message) {
  if (std::holds_alternative<StatusReport>(message)) return kIndexOf<StatusRequest>;
  if (std::holds_alternative<CommandReply>(message)) return kIndexOf<Command>;
  if (std::holds_alternative<FaultNoteAck>(message)) return kIndexOf<FaultNote>;
  return std::nullopt;
}

bool IsInterim(const Message& answer) {
  const auto* reply = std::get_if<CommandReply>(&answer);
  return reply != nullptr && reply->outcome == CommandOutcome::kAccepted;
}

// The answer that closes the request, or the last answer before the deadline.
Result<Message> RequestAnswer(ZmqContext& context, const std::string& endpoint, Message request,
                              Micros deadline) {
  std::string last_warning;
  SchedulerClient client(
      context, {.on_warning = [&](const std::string& text) { last_warning = "; " + text; }});
  if (Status s = client.Dial(endpoint); !s.ok()) return s;
  PANDO_CHECK(client.Ask(std::move(request)));
  std::optional<Message> last;
  while (client.open_count() > 0 && SteadyNow() < deadline) {
    client.Wait(deadline);
    if (std::optional<Message> answer = client.Poll()) last = std::move(answer);
  }
  if (last) return *std::move(last);
  return Unavailable(fmt::format(
      "no scheduler answered at {}{}: check the address, and that the run has not ended", endpoint,
      last_warning));
}

}  // namespace

SchedulerClient::SchedulerClient(ZmqContext& context, Options options)
    : options_(std::move(options)),
      self_{kUnknownNode, NewIncarnation(), 0},
      transport_(context, self_,
                 {.linger_ms = 0,
                  .queued_messages_max = kQueuedRequestsMax,
                  .on_warning = options_.on_warning}) {}

Status SchedulerClient::Dial(const std::string& endpoint) {
  return transport_.Dial(kWhoeverLeads, endpoint);
}

bool SchedulerClient::Ask(Message request) {
  const size_t kind = request.index();
  PANDO_CHECK(kind == kIndexOf<StatusRequest> || kind == kIndexOf<Command> ||
              kind == kIndexOf<FaultNote>);
  const Key key{kind, FaultNumber(request)};
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
  transport_.Send({.sender = self_, .receiver = kWhoeverLeads, .message = request});
}

// Whether it answers an open request.
bool SchedulerClient::Close(const Message& answer) {
  const std::optional<size_t> request = AnsweredRequest(answer);
  if (!request) return false;
  const auto it = open_.find({*request, FaultNumber(answer)});
  if (it == open_.end()) return false;
  if (!IsInterim(answer)) open_.erase(it);
  return true;
}

Result<std::string> RequestStatus(ZmqContext& context, const std::string& endpoint,
                                  Micros deadline) {
  Result<Message> answer = RequestAnswer(context, endpoint, StatusRequest{}, deadline);
  if (!answer.ok()) return answer.status();
  return std::get<StatusReport>(*std::move(answer)).json;
}

}  // namespace pando
