#include "tests/sim/compute/call_tickets.h"

namespace pando::sim {

uint64_t CallTickets::Issue(Step step, CallKind kind) {
  open_[++newest_] = {step, kind};
  return newest_;
}

void CallTickets::Emit(uint64_t ticket, Which which, ComputeEvent event) {
  const bool lasts = std::holds_alternative<GradientHashed>(event) ||
                     std::holds_alternative<ParametersWanted>(event);
  const auto is_wanted = [this, ticket, lasts] {
    return IsOpen(ticket) || (lasts && ticket >= lasting_from_);
  };
  if (!is_wanted()) return;
  post_([this, ticket, which, is_wanted, event = std::move(event)] {
    if (!is_wanted()) return;
    if (which == Which::kLast) open_.erase(ticket);
    deliver_(event);
  });
}

LayerPass CallTickets::MakePass(uint64_t ticket, ParameterUse use, Version version,
                                std::vector<ShardId> order) {
  return LayerPass(version, std::move(order), [this, ticket, use, version](ShardId shard) {
    Emit(ticket, Which::kMore, ParametersWanted{use, version, {shard}});
  });
}

void CallTickets::Abandon(Step from) {
  std::erase_if(open_, [&](const auto& entry) {
    return entry.second.kind == CallKind::kStep && entry.second.step >= from;
  });
}

void CallTickets::Forget() {
  open_.clear();
  lasting_from_ = newest_ + 1;
}

}  // namespace pando::sim
