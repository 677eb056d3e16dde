// JoinCore is the first protocol core of a new process. It sends Register until Welcome or Refused
// arrives. With the Welcome's job the process then builds its lane or session core, which continues
// with Ready. If a worker's program declares the run, JoinCore sends the parts of the declaration
// that the scheduler asks for (P43). Threads: none.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "proto/message_limits.h"
#include "proto/protocol_core.h"

namespace pando {

// DeclaredRun is a run that a program declares. `initial` is the flat vector of version 0.
struct DeclaredRun {
  std::string job_toml;
  Blob initial;
};

class JoinCore : public ProtocolCore {
 public:
  // `declared` outlives the core; it is null if this process declares nothing.
  JoinCore(Incarnation self, Register registration, Outbox& outbox,
           const DeclaredRun* declared = nullptr)
      : self_{kUnknownNode, self, 0},
        registration_(std::move(registration)),
        outbox_(outbox),
        declared_(declared) {}

  void OnMessage(Micros, const Envelope& envelope) override {
    if (envelope.receiver.incarnation != self_.incarnation || has_answer()) return;
    if (envelope.sender.node != kSchedulerNode) return;
    if (const auto* welcome = std::get_if<Welcome>(&envelope.message)) {
      welcome_ = *welcome;
      scheduler_ = envelope.sender;
      job_ = envelope.job;
    } else if (const auto* refused = std::get_if<Refused>(&envelope.message)) {
      refused_ = *refused;
    } else if (const auto* wanted = std::get_if<DeclarationWanted>(&envelope.message)) {
      Declare(*wanted);
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
  // The scheduler, the job's id, and this process as a member of the job. REQUIRES: welcome().
  PeerId scheduler() const { return scheduler_; }
  JobId job() const { return job_; }
  PeerId self(uint16_t lane) const { return {welcome_->node, self_.incarnation, lane}; }

 private:
  void Declare(const DeclarationWanted& wanted) {
    const size_t size = declared_ == nullptr ? 0 : declared_->initial.size_bytes();
    if (wanted.offset >= size) return;
    const size_t count = std::min<size_t>(size - wanted.offset, kMessageBytes);
    const Blob& all = declared_->initial;
    outbox_.Send(
        {.sender = self_,
         .receiver = {kSchedulerNode, {}, 0},
         .message = Declaration{
             .job_toml = wanted.offset == 0 ? declared_->job_toml : std::string(),
             .offset = wanted.offset,
             .payload = Blob(all.bytes().subspan(wanted.offset, count), all.keep_alive())}});
  }

  static constexpr Micros kRetryInterval = std::chrono::milliseconds(150);
  // The jitter depends on the incarnation, so that many waiting processes do not all send at once.
  static constexpr Micros kRetryJitter = std::chrono::milliseconds(100);
  PeerId self_;
  Register registration_;
  Outbox& outbox_;
  const DeclaredRun* const declared_;
  Micros send_at_{0};
  std::optional<Welcome> welcome_;
  std::optional<Refused> refused_;
  PeerId scheduler_;
  JobId job_;
};

}  // namespace pando
