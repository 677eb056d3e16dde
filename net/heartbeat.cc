#include "net/heartbeat.h"

#include <array>

#include "common/clock.h"

namespace pando {
namespace {

// While the scheduler is away, older heartbeats have no value.
constexpr int kQueuedHeartbeatsMax = 4;

}  // namespace

HeartbeatSender::HeartbeatSender(ZmqContext& context, const Options& options,
                                 const HeartbeatState& state)
    : options_(options),
      transport_(context, options.self,
                 {.channel = Channel::kHeartbeat,
                  .linger_ms = 0,
                  .queued_messages_max = kQueuedHeartbeatsMax}),
      state_(state) {}

HeartbeatSender::~HeartbeatSender() {
  stop_.Request();
  if (thread_.joinable()) thread_.join();
}

Status HeartbeatSender::Start() {
  PANDO_CHECK(!thread_.joinable());
  const PeerId scheduler{kSchedulerNode, Incarnation(), 0};
  PANDO_RETURN_IF_ERROR(transport_.Dial(scheduler, options_.scheduler_endpoint));
  answered_at_ = SteadyNow();
  thread_ = std::thread([this] { Run(); });
  return Status();
}

void HeartbeatSender::Update(const HeartbeatState& state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

void HeartbeatSender::Run() {
  const std::array<int, 1> fds = {stop_.fd()};
  Micros next{0};
  while (!stop_.is_requested()) {
    Envelope ack;
    while (transport_.Receive(&ack)) answered_at_ = SteadyNow();
    const Micros now = SteadyNow();
    if (now >= next) {
      transport_.Send(Compose(now));
      next = now + options_.interval;
    }
    transport_.Wait(next, fds);
  }
}

Envelope HeartbeatSender::Compose(Micros now) {
  const std::lock_guard lock(mutex_);
  Heartbeat heartbeat = state_.content;
  heartbeat.tcp_lines = state_.lines.tcp;
  heartbeat.ipc_lines = state_.lines.ipc;
  heartbeat.shm_lines = state_.lines.shm;
  heartbeat.waiting_ms = 0;
  if (state_.waiting_since && *state_.waiting_since < now) {
    const auto waited = now - *state_.waiting_since;
    heartbeat.waiting_ms = static_cast<uint64_t>(waited / std::chrono::milliseconds(1));
  }
  return {.job = state_.job,
          .generation = state_.generation,
          .view = state_.view,
          .sender = options_.self,
          .receiver = state_.scheduler,
          .message = heartbeat};
}

}  // namespace pando
