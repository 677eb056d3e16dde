#include "node/session_worker.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace pando {
namespace {

// The interval at which heartbeats show waits of the computing threads while the session is idle.
constexpr Micros kTellInterval = std::chrono::milliseconds(250);

std::string RelayEndpoint(const PeerId& relay) {
  return fmt::format("ipc://@pando-relay-{:016x}", relay.incarnation.value());
}

}  // namespace

Result<MembershipEnd> ConcludeWork(const Status& dialed, const NodeWatch& watch,
                                   const Lifecycle& life) {
  if (!dialed.ok()) return dialed;
  if (watch.verdict()) return *watch.verdict();
  // This process would fail again at once. Its launcher may restart it after a pause.
  if (life.refusal() && life.failure()) return Internal(life.failure()->text);
  return ConcludeMembership(life.stop(), life.refusal(), watch.is_leaving());
}

void ComputeNewsBox::Push(ComputeTicket ticket, ComputeEvent event) {
  const auto* gradient = std::get_if<GradientReady>(&event);
  const size_t bytes = gradient == nullptr ? 0 : gradient->payload.size_bytes();
  const bool is_little = gradient != nullptr && (unseen_bytes_ += bytes) < PushSender::kFlushBytes;
  if (!is_little) unseen_bytes_ = 0;
  std::ignore = mailbox_.Push({ticket, std::move(event)}, is_little ? Wake::kLater : Wake::kNow);
}

void HostLines::Open(const PeerId& self) {
  const Result<std::string> bound = transport_.Bind(RelayEndpoint(self));
  is_bound_ = bound.ok();
  if (!is_bound_)
    spdlog::info("cannot sum for other workers of this host: {}", bound.status().message());
}

void HostLines::Tell(bool is_given_up) {
  const PeerId before = std::exchange(given_up_, is_given_up ? relay_ : PeerId());
  if (before == given_up_) return;
  if (is_given_up)
    spdlog::info("node {} does not answer; pushing gradients to the servers", relay_.node.value());
  else if (before == relay_)
    spdlog::info("node {} answers; giving gradients to it again", relay_.node.value());
}

void HostLines::Close() {
  if (std::exchange(is_bound_, false)) transport_.Unbind();
  relay_ = given_up_ = PeerId();
}

std::set<PeerId> HostLines::Connect(const HostGroup& group, const View& view, const PeerId& self) {
  const bool is_news = std::exchange(relay_, group.relay) != group.relay;
  if (!group.has_relay()) return {};
  if (group.relay == self) {
    if (is_news)
      spdlog::info("summing the gradients of this host's {} workers", group.workers.size());
    return {};
  }
  if (is_news) {
    spdlog::info("giving gradients to node {}, a worker of this host, which sums them",
                 group.relay.node.value());
  }
  const auto relay = std::ranges::find(view.nodes, group.relay.node, &NodeInfo::node);
  const Status dialed = transport_.Dial(group.relay, RelayEndpoint(group.relay), relay->public_key);
  if (!dialed.ok()) spdlog::info("cannot reach it: {}", dialed.message());
  return dialed.ok() ? std::set{group.relay} : std::set<PeerId>();
}

SessionWorker::SessionWorker(const Parts& parts)
    : parts_(parts),
      views_(parts.transport, {.public_key = parts.membership.view_key, .secret_key = ""}),
      probe_(parts.timeline, parts.protocol),
      session_({.identity = {parts.membership.self, parts.membership.scheduler,
                             parts.membership.job_id, views_.seal(), probe_.get()},
                .ready = parts.ready,
                .sum_buffers = parts.buffers},
               parts.plan, parts.computer, parts.transport) {}

Result<MembershipEnd> SessionWorker::Run(const Tell& tell) {
  if (parts_.plan.may_sum_on_host()) parts_.host_lines.Open(parts_.membership.self);
  NodeWatch watch(parts_.shutdown, parts_.heartbeat, parts_.membership,
                  [this](Micros now) { session_.Leave(now); });
  const auto tell_all = [&](Micros now) {
    tell(session_, now);
    CheckSharing();
    parts_.host_lines.Tell(session_.has_given_up_relay());
  };
  RunLoop(session_, parts_.transport,
          {.stop = parts_.stop,
           .local = {watch.Source(),
                     {parts_.news.mailbox().fd(), [this](Micros now) { TakeNews(now); }},
                     {-1, tell_all, kTellInterval}},
           .enters = [this](const Envelope& envelope) { return session_.WillEnter(envelope); },
           .on_view = [this](const View& view) { Connect(view); },
           .is_finished = [&] { return session_.finished() || !dialed_.ok() || watch.verdict(); }});
  parts_.computer.Stop();
  LogTraffic();
  stop_ = session_.finished() ? std::optional(session_.lifecycle().stop()) : watch.stop();
  if (parts_.stop != nullptr && parts_.stop->is_requested() && !session_.finished())
    return MembershipEnd::kStopped;
  return ConcludeWork(dialed_, watch, session_.lifecycle());
}

void SessionWorker::TakeNews(Micros now) {
  for (ComputeNewsBox::News& news : parts_.news.mailbox().Drain()) {
    if (parts_.computer.IsCurrent(news.ticket, news.event))
      session_.OnComputeEvent(now, std::move(news.event));
  }
}

void SessionWorker::CheckSharing() {
  if (!dialed_.ok() || parts_.transport.sharing_failure().ok()) return;
  dialed_ = parts_.transport.sharing_failure();
  TellScheduler(parts_.transport, parts_.membership, session_.view().generation, dialed_);
}

void SessionWorker::Connect(const View& view) {
  if (!dialed_.ok()) return;
  const PeerId& self = parts_.membership.self;
  const HostGroup group = HostGroupFor(view, self, parts_.plan);
  const std::set<PeerId> relays = parts_.host_lines.Connect(group, view, self);
  dialed_ = DialView(parts_.transport, Role::kWorker, self, view, PrimariesTalk::kNo, relays);
  if (!dialed_.ok()) TellScheduler(parts_.transport, parts_.membership, view.generation, dialed_);
}

void SessionWorker::LogTraffic() const {
  const PushSender::Bytes& sent = session_.sent_bytes();
  spdlog::info(
      "pushed {} bytes, {} of them while backward was going on; pulled {} bytes; held at most {} "
      "bytes of parameters at a time; payloads copied by ZeroMQ on this host: {} bytes",
      sent.pushed, sent.early, session_.parameters().pulled_bytes(),
      parts_.computer.parameter_bytes_peak(), parts_.transport.counters().copied_on_host_bytes);
  if (sent.given > 0) spdlog::info("gave {} bytes to be summed on this host", sent.given);
}

}  // namespace pando
