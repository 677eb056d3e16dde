// FileSizeLimit: for its life no file of this process grows beyond N bytes, as on a disk that
// is full in the middle of a write.
#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>

namespace pando {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    before_signal_ = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, before_signal_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*before_signal_)(int) = nullptr;
};

}  // namespace pando
