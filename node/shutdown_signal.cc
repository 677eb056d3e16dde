#include "node/shutdown_signal.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "common/check.h"

namespace pando {

ShutdownSignal::ShutdownSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  for (const int signal : {SIGINT, SIGHUP, SIGUSR1}) {
    struct sigaction inherited {};
    PANDO_CHECK(sigaction(signal, nullptr, &inherited) == 0);
    // Set by nohup, or by a shell's `&`. signalfd would report the signal in any case.
    if (inherited.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
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
  if (signal == SIGUSR1 && first_signal_ != 0) return 0;
  const bool follows_notice = first_signal_ == SIGUSR1;
  if (first_signal_ == 0 || follows_notice) {
    first_signal_ = signal;
    first_at_ = now;
  }
  return follows_notice ? 0 : signal;
}

Status StoppedBy(int signal) {
  return Interrupted(signal == SIGINT ? "stopped by Ctrl-C" : "stopped by a signal");
}

}  // namespace pando
