// IsolationSignal cuts this process off for fault injection: SIGUSR2, sent by sigqueue(2) with a
// number of milliseconds (0 ends it), isolates its ZmqContext for that time. Made by the scheduler,
// server and worker processes.
#pragma once

#include "net/zmq/zmq_context.h"

namespace pando {

// One at a time in a process, because signal handlers belong to the process.
class IsolationSignal {
 public:
  explicit IsolationSignal(ZmqContext& context);  // outlives the signal
  ~IsolationSignal();                             // SIGUSR2 is ignored from then on
  IsolationSignal(const IsolationSignal&) = delete;
  IsolationSignal& operator=(const IsolationSignal&) = delete;
};

}  // namespace pando
