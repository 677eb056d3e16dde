#include "scheduler/declaration_intake.h"

#include <algorithm>
#include <variant>

#include "proto/dispatch.h"
#include "scheduler/run_status.h"

namespace pando {
namespace {

// Returns the status that `pando status` shows. Supervisors read its phase and step.
std::string WaitingStatus() {
  return StatusText({.phase = "gathering",
                     .waiting_for = "no worker whose program has declared the model",
                     .model = "external",
                     .dataset = "external"});
}

}  // namespace

void DeclarationIntake::OnMessage(Micros now, const Envelope& envelope) {
  const PeerId& from = envelope.sender;
  Dispatch<Core::kIntake>(
      envelope.message, [&](const Register& m) { OnRegister(now, from, m); },
      [&](const Declaration& m) { OnDeclaration(now, from, m); },
      [&](const StatusRequest&) { Send(from, StatusReport{WaitingStatus()}); },
      [&](const Command& m) { OnCommand(from, m); },
      [](const FaultNote&) {});  // ignored: its sender repeats it until the Scheduler answers
}

// A worker repeats its Register, so each one also requests a lost part again.
void DeclarationIntake::OnRegister(Micros now, const PeerId& from, const Register& registration) {
  if (registration.role != Role::kWorker || is_whole()) return;
  if (supplier_ == from.incarnation) {
    if (now - heard_at_ < kLostAfter) return;
  } else {
    if (supplier_ != Incarnation() && now - heard_at_ < kPatience) return;
    supplier_ = from.incarnation;
    heard_at_ = now;
    Forget();
  }
  Send(from, DeclarationWanted{bytes_.size()});
}

void DeclarationIntake::OnDeclaration(Micros now, const PeerId& from, const Declaration& part) {
  if (from.incarnation != supplier_ || is_whole()) return;
  heard_at_ = now;
  // The part is a duplicate, whose answer would double every later part, or an earlier scheduler
  // requested it and it has no job.
  if (part.offset != bytes_.size()) return;
  if (wanted_bytes_ == 0 && !Begin(from, part.job_toml)) return;
  const std::span<const std::byte> more = part.payload.bytes();
  if (more.size() > wanted_bytes_ - bytes_.size())
    return Refuse(from, "its version 0 is longer than its tensors");
  bytes_.insert(bytes_.end(), more.begin(), more.end());
  if (!is_whole()) Send(from, DeclarationWanted{bytes_.size()});
}

bool DeclarationIntake::Begin(const PeerId& from, const std::string& job_toml) {
  const Result<uint64_t> wanted = judge_(job_toml);
  if (!wanted.ok()) {
    Refuse(from, wanted.status().message());
    return false;
  }
  job_toml_ = job_toml;
  wanted_bytes_ = *wanted;
  bytes_.reserve(wanted_bytes_);
  return true;
}

void DeclarationIntake::OnCommand(const PeerId& from, const Command& command) {
  const bool is_stop = command.kind == CommandKind::kStop;
  if (is_stop) stop_text_ = "stopped before a worker had declared the model";
  Send(from, CommandReply{is_stop ? CommandOutcome::kDone : CommandOutcome::kRefused,
                          is_stop ? stop_text_ : "no worker has declared the model yet"});
}

void DeclarationIntake::Refuse(const PeerId& from, const std::string& reason) {
  Send(from, Refused{reason, RefusalKind::kNotThisOne});
  supplier_ = Incarnation();
  Forget();
}

void DeclarationIntake::Forget() {
  wanted_bytes_ = 0;
  bytes_.clear();
}

void DeclarationIntake::Send(const PeerId& to, Message message) {
  outbox_.Send({.sender = self_, .receiver = to, .message = std::move(message)});
}

}  // namespace pando
