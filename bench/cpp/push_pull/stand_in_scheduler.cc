#include "bench/cpp/push_pull/stand_in_scheduler.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace pando::bench {
namespace {

constexpr JobId kJob{1};
constexpr Micros kViewRetry = std::chrono::milliseconds(200);

}  // namespace

void StandInScheduler::OnMessage(Micros now, const Envelope& envelope) {
  const PeerId& from = envelope.sender;
  if (const auto* registration = std::get_if<Register>(&envelope.message)) {
    OnRegister(from, *registration);
  } else if (std::holds_alternative<Ready>(envelope.message)) {
    OnReady(from.incarnation);
  } else if (std::holds_alternative<ViewAck>(envelope.message)) {
    const auto it = members_.find(from.incarnation);
    if (it != members_.end()) it->second.has_view = true;
  } else if (const auto* request = std::get_if<ScalarsRequest>(&envelope.message)) {
    OnScalarsRequest(from, request->first);
  } else if (const auto* progress = std::get_if<Progress>(&envelope.message)) {
    const Step next = progress->rows.empty() ? Step(0) : NextStep(progress->rows.back().step);
    Send(from, ProgressAck{progress->committed, next});
  } else if (std::holds_alternative<Heartbeat>(envelope.message)) {
    Send(from, HeartbeatAck{});
  }
  if (view_.id.number != 0 && view_at_ == kNever &&
      !std::ranges::all_of(members_ | std::views::values, &Member::has_view)) {
    view_at_ = now;
  }
}

void StandInScheduler::Send(const PeerId& to, Message message) {
  outbox_.Send({.job = kJob,
                .generation = view_.generation,
                .view = view_.id,
                .sender = self_,
                .receiver = to,
                .message = std::move(message)});
}

void StandInScheduler::OnRegister(const PeerId& from, const Register& registration) {
  const NodeId node(static_cast<uint32_t>(members_.size()) + 1);
  auto [it, is_new] = members_.try_emplace(from.incarnation);
  Member& member = it->second;
  if (is_new) {
    member.info = {.node = node,
                   .incarnation = from.incarnation,
                   .role = registration.role,
                   .rank = registration.wanted_rank,
                   .host = registration.host,
                   .lane_endpoints = registration.lane_endpoints,
                   .public_key = registration.public_key};
    member.peer = {node, from.incarnation, 0};
  }
  Send(from, Welcome{.node = member.info.node,
                     .rank = member.info.rank,
                     .job_toml = "",
                     .data = plan_.data,
                     .snapshot_dir = ""});
}

void StandInScheduler::OnReady(Incarnation from) {
  const auto it = members_.find(from);
  if (it == members_.end()) return;
  it->second.is_ready = true;
  const auto ready_count =
      std::ranges::count(members_ | std::views::values, true, &Member::is_ready);
  if (ready_count == load_.servers + load_.workers && view_.id.number == 0) MakeView();
}

// Gives shards to servers in runs, and micro-batch m to worker m.
void StandInScheduler::MakeView() {
  view_.id = {1, 1};
  view_.generation = 1;
  view_.restore = {1, Version(0)};
  view_.shards.resize(plan_.shards.shard_count());
  view_.owners.resize(load_.workers);
  for (const auto& [incarnation, member] : members_) {
    view_.nodes.push_back(member.info);
    const uint32_t rank = member.info.rank;
    if (member.info.role == Role::kWorker) {
      view_.owners[rank].worker = member.info.node;
      continue;
    }
    for (uint32_t i = 0; i < load_.shards_per_server; ++i)
      view_.shards[rank * load_.shards_per_server + i].primary = member.peer;
  }
}

void StandInScheduler::OnScalarsRequest(const PeerId& from, Step first) {
  const StepScalars scalars{.lr = static_cast<float>(plan_.job.optimizer.lr),
                            .momentum = static_cast<float>(plan_.job.optimizer.momentum)};
  Send(from, Scalars{first, std::vector<StepScalars>(kScalarsPerBlock, scalars)});
}

void StandInScheduler::Tick(Micros now) {
  if (now < view_at_) return;
  view_at_ = kNever;
  for (const auto& [incarnation, member] : members_) {
    if (member.has_view) continue;
    Send(member.peer, ViewUpdate{view_});
    view_at_ = now + kViewRetry;
  }
}

}  // namespace pando::bench
