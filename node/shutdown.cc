#include "node/shutdown.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "common/check.h"

namespace pando {

ShutdownSignal::ShutdownSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  PANDO_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  fd_ = UniqueFd(signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
  PANDO_CHECK(fd_.is_open());
}

int ShutdownSignal::Take() {
  signalfd_siginfo info;
  if (read(fd_.get(), &info, sizeof info) != sizeof info) return 0;
  const auto now = std::chrono::steady_clock::now();
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == first_signal_ && now - first_at_ < kOneRequest) return 0;
  if (first_signal_ == 0) {
    first_signal_ = signal;
    first_at_ = now;
  }
  return signal;
}

}  // namespace pando
