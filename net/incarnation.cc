#include "net/incarnation.h"

#include <sys/random.h>

#include <cerrno>

#include "common/check.h"

namespace pando {

Incarnation NewIncarnation() {
  uint64_t value = 0;
  while (value == 0) {
    const ssize_t bytes_read = getrandom(&value, sizeof(value), 0);
    PANDO_CHECK(bytes_read == sizeof(value) || errno == EINTR);
  }
  return Incarnation(value);
}

}  // namespace pando
