// ScopedStackSize sets the stack size of threads that start while it lives. `pando view` and
// RequestQueue use it.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace pando {

// It changes the process's default, and restores it at its end. Threads: one at a time.
class ScopedStackSize {
 public:
  explicit ScopedStackSize(size_t bytes) {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  ~ScopedStackSize() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  ScopedStackSize(const ScopedStackSize&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace pando
