// IsolationSignal isolates a ZmqContext for fault injection. SIGUSR2, sent by sigqueue(2) with a
// number of milliseconds (0 ends it), isolates the context for that time. The scheduler, server and
// worker processes make one. There is at most one per process, because signal handlers belong to
// the process.
#pragma once

#include "net/zmq/zmq_context.h"

namespace pando {

class IsolationSignal {
 public:
  explicit IsolationSignal(ZmqContext& context);  // outlives the signal
  ~IsolationSignal();                             // after it SIGUSR2 is ignored
  IsolationSignal(const IsolationSignal&) = delete;
  IsolationSignal& operator=(const IsolationSignal&) = delete;
};

}  // namespace pando
