// What `pando status` is told.
#include <nlohmann/json.hpp>

#include "scheduler/scheduler.h"

namespace pando {
namespace {

const char* ActivityText(Activity activity) {
  switch (activity) {
    case Activity::kStarting:
      return "starting";
    case Activity::kIdle:
      return "idle";
    case Activity::kComputing:
      return "computing";
    case Activity::kWaitingForParameters:
      return "waiting for parameters";
    case Activity::kEvaluating:
      return "evaluating";
    case Activity::kServing:
      return "serving";
    case Activity::kLeaving:
      return "leaving";
  }
  return "unknown";
}

const char* PhaseText(Scheduler::Phase phase) {
  switch (phase) {
    case Scheduler::Phase::kGathering:
      return "gathering";
    case Scheduler::Phase::kTraining:
      return "training";
    case Scheduler::Phase::kCollecting:
      return "collecting weights";
    case Scheduler::Phase::kStopping:
      return "stopping";
    case Scheduler::Phase::kFinished:
      return "finished";
  }
  return "unknown";
}

}  // namespace

std::string Scheduler::StatusJson(Micros now) const {
  nlohmann::ordered_json status;
  status["phase"] = PhaseText(phase_);
  if (phase_ == Phase::kGathering) status["waiting_for"] = MissingText();
  status["step"] = committed().value();
  status["step_count"] = plan_.steps.step_count();
  status["view"] = view_.id.number;
  status["model"] = plan_.job.model;
  status["dataset"] = plan_.job.dataset;
  status["nodes"] = nlohmann::ordered_json::array();
  for (const auto& [node, member] : members_) {
    const Heartbeat& heartbeat = member.heartbeat;
    nlohmann::ordered_json entry;
    entry["name"] = NameOf(member);
    entry["host"] = member.registration.host;
    entry["pid"] = member.registration.process_id;
    entry["activity"] = member.is_gone ? "gone" : ActivityText(heartbeat.activity);
    entry["step"] = heartbeat.step.value();
    entry["silent_ms"] = (now - member.heard_at).count() / 1000;
    if (heartbeat.activity == Activity::kWaitingForParameters) {
      const auto owing = members_.find(heartbeat.waiting_for.node);
      if (owing != members_.end()) entry["waiting_for"] = NameOf(owing->second);
      entry["waiting_ms"] = heartbeat.waiting_ms;
    }
    status["nodes"].push_back(std::move(entry));
  }
  // Host names come from the wire: what is not UTF-8 is replaced, not thrown at.
  return status.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void Scheduler::OnMessageOf(Micros now, const PeerId& from, const StatusRequest&) {
  Send(from, StatusReport{StatusJson(now)});
}

}  // namespace pando
