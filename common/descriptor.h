// UniqueFd owns a file descriptor. EventFd is a flag that another thread raises and an event loop
// polls.
#pragma once

namespace pando {

class UniqueFd {  // -1 means no descriptor
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int Release();

 private:
  int fd_ = -1;
};

// Threads: any thread may Raise; the polling thread calls Clear.
class EventFd {
 public:
  EventFd();
  // Readable while the flag is raised.
  int fd() const { return fd_.get(); }
  void Raise() const;  // safe in a signal handler
  void Clear() const;

 private:
  const UniqueFd fd_;
};

}  // namespace pando
