#include "net/zmq/zmq_context.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <utility>

#include "common/check.h"
#include "net/zmq/zap_handler.h"

namespace pando {
namespace {

constexpr int kSocketsMax = 16384;  // a worker has one per server lane

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

// noexcept: an error here is a bug, whose exception ends the process.
ZmqContext::ZmqContext(Keys keys, std::function<void(const std::string& text)> on_warning) noexcept
    : keys_(std::move(keys)),
      own_keys_(keys_.are_none() ? KeyPair() : DrawKeyPair()),
      on_warning_(std::move(on_warning)) {
  context_.set(zmq::ctxopt::max_sockets, kSocketsMax);
}

// close() makes the handler's thread close its socket, and waits until it has.
ZmqContext::~ZmqContext() { context_.close(); }

Status ZmqContext::StartLettingIn() {
  if (zap_handler_ != nullptr) return Status();
  try {
    zap_handler_ = std::make_unique<ZapHandler>(context_, keys_, own_keys_, on_warning_);
  } catch (const std::exception& error) {
    return Unavailable(
        fmt::format("no further socket or thread for keys: {}; raise the limit of "
                    "open files (ulimit -n)",
                    error.what()));
  }
  return Status();
}

bool ZmqContext::is_isolated() const {
  const Micros until = isolated_until_.load(std::memory_order_relaxed);
  return until != Micros(0) && SteadyNow() < until;
}

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

std::string ZmqVersion() {
  const auto [major, minor, patch] = zmq::version();
  return fmt::format("{}.{}.{}", major, minor, patch);
}

}  // namespace pando
