#include "common/descriptor.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "common/check.h"

namespace pando {

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

int UniqueFd::Release() { return std::exchange(fd_, -1); }

EventFd::EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { PANDO_CHECK(fd_.is_open()); }

void EventFd::Raise() const {
  const uint64_t one = 1;
  // EAGAIN means that the counter is full, so the flag is already raised.
  const ssize_t written = write(fd(), &one, sizeof(one));
  PANDO_CHECK(written == sizeof(one) || errno == EAGAIN);
}

void EventFd::Clear() const {
  uint64_t count = 0;
  const ssize_t bytes_read = read(fd(), &count, sizeof(count));
  PANDO_CHECK(bytes_read == sizeof(count) || errno == EAGAIN);
}

}  // namespace pando
