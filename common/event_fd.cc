#include "common/event_fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "common/check.h"

namespace pando {

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
