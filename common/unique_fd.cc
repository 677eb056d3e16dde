#include "common/unique_fd.h"

#include <unistd.h>

#include <utility>

namespace pando {

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

int UniqueFd::Release() { return std::exchange(fd_, -1); }

}  // namespace pando
