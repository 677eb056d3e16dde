// JoinRun: how a server or worker process becomes part of a run, and how it learns that the run's
// scheduler has gone. Used by the server and the worker process.
#pragma once

#include <memory>
#include <string>

#include "cli/shutdown.h"
#include "common/job_plan.h"
#include "models/network.h"
#include "net/event_loop.h"
#include "net/heartbeat.h"
#include "proto/join.h"

namespace pando {

// What the scheduler said when it welcomed this process.
struct Membership {
  PeerId self;  // lane 0
  PeerId scheduler;
  JobId job_id;
  uint32_t rank = 0;
  Job job;
  DataFacts data;
};

// Registers through `transport`, which has dialed the scheduler, and waits for its answer, saying
// for whom it waits. kUnavailable after `timeout_ms`, kInvalidArgument when refused, kInterrupted.
Result<Membership> JoinRun(Transport& transport, Incarnation self, const Register& registration,
                           const std::string& scheduler_endpoint, uint32_t timeout_ms,
                           ShutdownSignal& shutdown);

// The model and plan that the scheduler's facts describe.
Result<Model> ModelOf(const Membership& membership);

// HostName and process id, for the registration.
Register DescribeProcess(Role role);

// NodeWatch ends the loop of a server or worker by itself: on a signal, or when the scheduler has
// been silent for long.
class NodeWatch {
 public:
  NodeWatch(ShutdownSignal& shutdown, const HeartbeatSender& heartbeat,
            const Membership& membership, Transport& transport)
      : shutdown_(shutdown),
        heartbeat_(heartbeat),
        membership_(membership),
        transport_(transport) {}

  // A loop's local event source: looks at signals and at the scheduler's last sign of life.
  LocalEvents Source();
  // Why the node has to leave by itself; OK while it need not.
  const Status& verdict() const { return verdict_; }

 private:
  void Look(Micros now);

  ShutdownSignal& shutdown_;
  const HeartbeatSender& heartbeat_;
  const Membership& membership_;
  Transport& transport_;
  Status verdict_;
};

}  // namespace pando
