// EventFd: a flag that another thread raises and an event loop polls.
// Threads: any may Raise; Clear by the poller.
#pragma once

namespace pando {

class EventFd {
 public:
  EventFd();
  ~EventFd();
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  // Readable while the flag is raised.
  int fd() const { return fd_; }
  void Raise() const;  // safe in a signal handler
  void Clear() const;

 private:
  int fd_;
};

}  // namespace pando
