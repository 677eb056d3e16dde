#include "node/shutdown_signal.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>

namespace pando {
namespace {

bool IsReadable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return poll(&polled, 1, 0) == 1;
}

TEST_CASE("signals wait at the descriptor and are taken one by one") {
  sigset_t before;
  sigprocmask(SIG_SETMASK, nullptr, &before);
  ShutdownSignal shutdown;
  CHECK_FALSE(IsReadable(shutdown.fd()));
  CHECK(shutdown.Take() == 0);
  CHECK(shutdown.first_signal() == 0);
  kill(getpid(), SIGTERM);
  CHECK(IsReadable(shutdown.fd()));
  CHECK(shutdown.Take() == SIGTERM);
  kill(getpid(), SIGTERM);  // of the same request
  CHECK(shutdown.Take() == 0);
  kill(getpid(), SIGINT);
  CHECK(shutdown.Take() == SIGINT);
  CHECK(shutdown.Take() == 0);
  CHECK(shutdown.first_signal() == SIGTERM);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("the notice of a batch system asks to leave, unless the process ignores it") {
  sigset_t before;
  sigprocmask(SIG_SETMASK, nullptr, &before);
  {
    ShutdownSignal shutdown;
    kill(getpid(), SIGUSR1);
    CHECK(shutdown.Take() == SIGUSR1);
    kill(getpid(), SIGTERM);  // of the supervisor, which has the notice too
    CHECK(shutdown.Take() == 0);
    kill(getpid(), SIGUSR1);
    CHECK(shutdown.Take() == 0);
    kill(getpid(), SIGINT);
    CHECK(shutdown.Take() == SIGINT);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  signal(SIGUSR1, SIG_IGN);
  {
    ShutdownSignal shutdown;
    kill(getpid(), SIGUSR1);
    CHECK(shutdown.Take() == 0);
  }
  signal(SIGUSR1, SIG_DFL);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace pando
