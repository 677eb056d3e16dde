// EngineAgreement: the protocol of a GPU worker between Welcome and Ready, where the job measures
// engines (P39). It asks which engines its kind computes with. If none are decided, the worker
// measures and proposes its own; then it computes with the engines of the answer, which may be
// another worker's. Threads: none.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "proto/core.h"
#include "proto/view_member.h"

namespace pando {

class EngineAgreement : public ProtocolCore {
 public:
  static constexpr Micros kRepeatInterval = std::chrono::milliseconds(200);

  // `kind`: of the worker's Ready. `outbox` outlives it.
  EngineAgreement(const ViewMember::Identity& identity, std::string kind, Outbox& outbox)
      : identity_(identity), kind_(std::move(kind)), outbox_(outbox) {}

  // None are decided for this kind: measure, then call Propose.
  bool is_asked_to_measure() const { return is_asked_to_measure_ && !is_over(); }
  // `engines` is not empty.
  void Propose(std::string engines) {
    proposal_ = std::move(engines);
    is_asked_to_measure_ = false;
    send_at_ = Micros(0);
  }
  // The process was asked to leave. The scheduler answers with Stop, or does not: a group goes on.
  void Leave() {
    is_leaving_ = true;
    send_at_ = Micros(0);
  }

  // The engines to compute with. None yet, or never: the membership ended.
  const std::optional<std::string>& engines() const { return engines_; }
  // How the membership ended; `refusal` if the scheduler refused.
  const std::optional<Stop>& end() const { return end_; }
  const std::optional<RefusalKind>& refusal() const { return refusal_; }
  bool is_leaving() const { return is_leaving_; }
  bool is_over() const { return engines_ || end_; }

  void OnMessage(Micros, const Envelope& envelope) override {
    const bool is_ours = envelope.job == identity_.job &&
                         envelope.receiver.incarnation == identity_.self.incarnation &&
                         envelope.sender.node == kSchedulerNode;
    if (!is_ours || is_over()) return;
    if (const auto* stop = std::get_if<Stop>(&envelope.message)) {
      Send(envelope.sender, Bye{});
      end_ = *stop;
    } else if (const auto* refused = std::get_if<Refused>(&envelope.message)) {
      end_ = {StopReason::kFailed, refused->reason};
      refusal_ = refused->kind;
    } else if (const auto* decision = std::get_if<EngineDecision>(&envelope.message)) {
      if (decision->kind == kind_) OnDecision(*decision);
    }
  }

  void Tick(Micros now) override {
    if (is_over() || now < send_at_) return;
    send_at_ = now + kRepeatInterval;
    if (is_leaving_) Send(identity_.scheduler, pando::Leave{});
    if (!is_asked_to_measure_) Send(identity_.scheduler, EngineProposal{kind_, proposal_});
  }

  Micros NextDeadline() const override { return is_over() ? kNever : send_at_; }

 private:
  // An empty answer that arrives after the proposal was made is a late answer to the question.
  void OnDecision(const EngineDecision& decision) {
    if (!decision.engines.empty()) {
      engines_ = decision.engines;
    } else if (proposal_.empty()) {
      is_asked_to_measure_ = true;
    }
  }
  void Send(const PeerId& to, Message message) {
    outbox_.Send({.job = identity_.job,
                  .sender = identity_.self,
                  .receiver = to,
                  .message = std::move(message)});
  }

  const ViewMember::Identity identity_;
  const std::string kind_;
  Outbox& outbox_;
  Micros send_at_{0};
  std::string proposal_;  // empty: not measured
  bool is_asked_to_measure_ = false;
  bool is_leaving_ = false;
  std::optional<std::string> engines_;
  std::optional<Stop> end_;
  std::optional<RefusalKind> refusal_;
};

}  // namespace pando
