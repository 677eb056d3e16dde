// JoinCore: the first protocol of a new process. It sends Register until Welcome or Refused. With
// the welcome's job the process then builds its lane or session core, which continues with Ready.
// Threads: none.
#pragma once

#include <optional>

#include "proto/core.h"

namespace pando {

class JoinCore : public ProtocolCore {
 public:
  JoinCore(Incarnation self, Register registration, Outbox& outbox)
      : self_{kUnknownNode, self, 0}, registration_(std::move(registration)), outbox_(outbox) {}

  void OnMessage(Micros, const Envelope& envelope) override {
    if (envelope.receiver.incarnation != self_.incarnation || has_answer()) return;
    if (const auto* welcome = std::get_if<Welcome>(&envelope.message)) {
      welcome_ = *welcome;
      scheduler_ = envelope.sender;
      job_ = envelope.job;
    } else if (const auto* refused = std::get_if<Refused>(&envelope.message)) {
      refused_ = *refused;
    }
  }

  void Tick(Micros now) override {
    if (has_answer() || now < send_at_) return;
    outbox_.Send({.sender = self_, .receiver = {kSchedulerNode, {}, 0}, .message = registration_});
    send_at_ = now + kRetryInterval + Micros(self_.incarnation.value() % kRetryJitter.count());
  }

  Micros NextDeadline() const override { return has_answer() ? kNever : send_at_; }

  bool has_answer() const { return welcome_ || refused_; }
  const std::optional<Welcome>& welcome() const { return welcome_; }
  const std::optional<Refused>& refused() const { return refused_; }
  // REQUIRES: welcome().  The scheduler, the job's id, and this process as a member of the job.
  PeerId scheduler() const { return scheduler_; }
  JobId job() const { return job_; }
  PeerId self(uint16_t lane) const { return {welcome_->node, self_.incarnation, lane}; }

 private:
  static constexpr Micros kRetryInterval = std::chrono::milliseconds(150);
  // By incarnation, so that many processes that wait for one scheduler do not all send at once.
  static constexpr Micros kRetryJitter = std::chrono::milliseconds(100);
  PeerId self_;
  Register registration_;
  Outbox& outbox_;
  Micros send_at_{0};
  std::optional<Welcome> welcome_;
  std::optional<Refused> refused_;
  PeerId scheduler_;
  JobId job_;
};

}  // namespace pando
