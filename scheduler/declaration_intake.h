// DeclarationIntake is the scheduler's core until a program has declared the run's model (P43). One
// worker supplies the job and version 0; the Scheduler answers the others' Register later.
// net/event_loop runs the intake.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "proto/messages.h"
#include "proto/protocol_core.h"

namespace pando {

class DeclarationIntake : public ProtocolCore {
 public:
  // If the supplier sends nothing for this time, another worker becomes the supplier.
  static constexpr Micros kPatience = std::chrono::seconds(2);
  // After this silence a part or its request was lost: the next Register repeats the request.
  static constexpr Micros kLostAfter = std::chrono::milliseconds(200);
  // Checks a declared job and returns the size of its version 0. An error refuses the worker.
  using Judge = std::function<Result<uint64_t>(const std::string& job_toml)>;

  // `outbox` outlives it.
  DeclarationIntake(const PeerId& self, Judge judge, Outbox& outbox)
      : self_(self), judge_(std::move(judge)), outbox_(outbox) {}

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros) override {}
  Micros NextDeadline() const override { return kNever; }

  Micros heard_at() const { return heard_at_; }  // when a supplier sent the last message
  // Returns whether the job and all of version 0 have arrived.
  bool is_whole() const { return wanted_bytes_ > 0 && bytes_.size() == wanted_bytes_; }
  // Why the run was stopped by a client's command; empty if it was not.
  const std::string& stop_text() const { return stop_text_; }
  // REQUIRES: is_whole().
  const std::string& job_toml() const { return job_toml_; }
  std::vector<std::byte> TakeBytes() { return std::move(bytes_); }  // version 0's flat vector

 private:
  void OnRegister(Micros now, const PeerId& from, const Register& registration);
  void OnDeclaration(Micros now, const PeerId& from, const Declaration& part);
  void OnCommand(const PeerId& from, const Command& command);
  bool Begin(const PeerId& from, const std::string& job_toml);
  void Refuse(const PeerId& from, const std::string& reason);
  void Forget();
  void Send(const PeerId& to, Message message);

  const PeerId self_;
  const Judge judge_;
  Outbox& outbox_;
  Incarnation supplier_;  // 0: none
  Micros heard_at_{0};    // when the supplier sent the last message
  std::string job_toml_;
  uint64_t wanted_bytes_ = 0;  // 0: no job has arrived
  std::vector<std::byte> bytes_;
  std::string stop_text_;
};

}  // namespace pando
