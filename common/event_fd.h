// EventFd is a flag that another thread raises and an event loop polls.
#pragma once

#include "common/unique_fd.h"

namespace pando {

// Threads: any thread may Raise; the polling thread calls Clear.
class EventFd {
 public:
  EventFd();
  // The descriptor is readable while the flag is raised.
  int fd() const { return fd_.get(); }
  void Raise() const;  // safe in a signal handler
  void Clear() const;

 private:
  const UniqueFd fd_;
};

}  // namespace pando
