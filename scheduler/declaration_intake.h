// DeclarationIntake is the scheduler of a run whose model a program declares (P43), until it has
// the declaration. One worker supplies the job and version 0; the others wait, and their Register
// is answered once the run's own core is there. Run by net/event_loop before the Scheduler.
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
  // A supplier that sends nothing for this time loses its turn: another's declaration counts.
  static constexpr Micros kPatience = std::chrono::seconds(2);
  // A part, or the wish for it, was lost: the next registration asks again.
  static constexpr Micros kLostAfter = std::chrono::milliseconds(200);
  // Checks a declared job; returns the bytes of its version 0. A failure refuses the worker.
  using Judge = std::function<Result<uint64_t>(const std::string& job_toml)>;

  // `outbox` outlives it.
  DeclarationIntake(const PeerId& self, Judge judge, Outbox& outbox)
      : self_(self), judge_(std::move(judge)), outbox_(outbox) {}

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros) override {}
  Micros NextDeadline() const override { return kNever; }

  Micros heard_at() const { return heard_at_; }  // when a supplier sent the last message
  // Whether the job and all of version 0 are here.
  bool is_whole() const { return wanted_bytes_ > 0 && bytes_.size() == wanted_bytes_; }
  // Why a client asked to end the run, if one did; empty: none did.
  const std::string& stop_text() const { return stop_text_; }
  // REQUIRES: is_whole().
  const std::string& job_toml() const { return job_toml_; }
  std::vector<std::byte> TakeBytes() { return std::move(bytes_); }  // the flat vector

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
  uint64_t wanted_bytes_ = 0;  // 0: the job is not here
  std::vector<std::byte> bytes_;
  std::string stop_text_;
};

}  // namespace pando
