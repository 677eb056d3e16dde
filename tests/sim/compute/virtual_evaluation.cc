#include "tests/sim/compute/virtual_evaluation.h"

#include <span>
#include <utility>

#include "common/hash.h"
#include "tests/sim/reference.h"

namespace pando::sim {

void VirtualEvaluation::SetVersion(Version version) {
  if (version_ != version) copy_.clear();
  version_ = version;
}

void VirtualEvaluation::EvaluateSlice(const Evaluate& request) {
  request_ = request;
  SetVersion(request.version);
  if (!is_layered()) return TryWhole();
  pass_ticket_ = tickets_.Issue(Step(0), CallKind::kEvaluation);
  pass_.emplace(tickets_.MakePass(pass_ticket_, ParameterUse::kEvaluation, request.version,
                                  ListShards(plan_, ShardsRead::kAll)));
  pass_digest_ = 0;
  pass_->Start();
}

void VirtualEvaluation::ParametersArrived(ShardId shard, Version version,
                                          std::vector<float> floats) {
  if (is_layered()) {
    if (pass_) pass_->Arrived(shard, version, std::move(floats));
    return TryLayered();
  }
  SetVersion(version);
  copy_[shard] = std::move(floats);
  TryWhole();
}

void VirtualEvaluation::ParametersGone() {
  request_.reset();
  pass_.reset();
}

void VirtualEvaluation::Forget() {
  copy_.clear();
  version_ = Version(0);
  ParametersGone();
}

void VirtualEvaluation::TryWhole() {
  if (!request_ || request_->version != version_) return;
  const std::optional<uint64_t> digest = DigestIfWhole(plan_, copy_, ShardsRead::kAll);
  if (digest) ReportResult(tickets_.Issue(Step(0), CallKind::kEvaluation), *digest);
}

void VirtualEvaluation::TryLayered() {
  if (!request_ || !pass_) return;
  for (; pass_->is_ready(); pass_->DropAndGoOn()) {
    if (pass_->shard() == plan_.metric_shard()) continue;
    pass_digest_ = Hash64(std::as_bytes(pass_->floats()), pass_digest_);
  }
  if (!pass_->is_done()) return;
  pass_.reset();
  ReportResult(pass_ticket_, pass_digest_);
}

void VirtualEvaluation::ReportResult(uint64_t ticket, uint64_t digest) {
  EvaluationResult result{.version = request_->version, .slice = request_->slice};
  if (request_->part == EvaluationPart::kReport)
    result.stop_text = StopText(plan_, digest);
  else
    result = MakeEvaluation(digest, *request_);
  world_.After(time_(), [this, ticket, result] {
    tickets_.Emit(ticket, CallTickets::Which::kLast, result);
  });
  request_.reset();
}

}  // namespace pando::sim
