#include "node/session_worker.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace pando {
namespace {

// The interval at which heartbeats show waits of the computing threads while the session is idle.
constexpr Micros kTellInterval = std::chrono::milliseconds(250);

}  // namespace

Result<MembershipEnd> ConcludeWork(const Status& dialed, const NodeWatch& watch,
                                   const Lifecycle& life) {
  if (!dialed.ok()) return dialed;
  // A process that has ended with the run is no member any more, and may hear that, too.
  if (watch.verdict() && !life.finished()) return *watch.verdict();
  // This process would fail again at once. Its launcher may restart it after a pause.
  if (life.refusal() && life.failure()) return Internal(life.failure()->text);
  return ConcludeMembership(life.stop(), life.refusal(), watch.is_leaving());
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
  if (parts_.plan.may_sum_near()) parts_.sum_lines.Open(parts_.membership.self);
  NodeWatch watch(parts_.shutdown, parts_.heartbeat, parts_.membership,
                  [this](Micros now) { session_.Leave(now); });
  const auto tell_all = [&](Micros now) {
    tell(session_, now);
    CheckSharing();
    parts_.sum_lines.Tell(session_.has_given_up_relay());
  };
  RunLoop(session_, parts_.transport,
          {.stop = parts_.stop,
           .local = {watch.Source(),
                     {parts_.news.mailbox().fd(), [this](Micros now) { TakeNews(now); }},
                     {-1, tell_all, kTellInterval}},
           .next_view = [this](const Envelope& envelope) { return session_.NextView(envelope); },
           .on_view = [this](const View& view) { Connect(view); },
           .is_finished = [&] { return session_.finished() || !dialed_.ok() || watch.verdict(); }});
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
  const SumGroup group = SumGroupFor(view, self, parts_.plan);
  const std::set<PeerId> relays = parts_.sum_lines.Connect(group, view, self);
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
  if (sent.given > 0) spdlog::info("gave {} bytes to workers that sum them", sent.given);
}

}  // namespace pando
