#include "net/zmq/isolation_signal.h"

#include <algorithm>
#include <atomic>
#include <csignal>

#include "common/check.h"

namespace pando {
namespace {

// A signal handler gets only the signal, so its target must be static.
std::atomic<ZmqContext*> isolated_context = nullptr;
static_assert(std::atomic<ZmqContext*>::is_always_lock_free);
static_assert(std::atomic<Micros>::is_always_lock_free);

// Async-signal-safe: it uses atomics and clock_gettime.
void Isolate(int, siginfo_t* info, void*) {
  ZmqContext* context = isolated_context;
  if (context == nullptr || info->si_code != SI_QUEUE) return;
  const int duration_ms = std::max(info->si_value.sival_int, 0);
  context->IsolateUntil(SteadyNow() + std::chrono::milliseconds(duration_ms));
}

}  // namespace

IsolationSignal::IsolationSignal(ZmqContext& context) {
  PANDO_CHECK(isolated_context.exchange(&context) == nullptr);
  struct sigaction action {};
  action.sa_sigaction = Isolate;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  PANDO_CHECK(sigaction(SIGUSR2, &action, nullptr) == 0);
}

IsolationSignal::~IsolationSignal() {
  PANDO_CHECK(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
  isolated_context = nullptr;
}

}  // namespace pando
