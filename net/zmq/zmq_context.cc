#include "net/zmq/zmq_context.h"

#include <fmt/core.h>

#include <exception>
#include <utility>

#include "common/check.h"
#include "net/zmq/zap_handler.h"

namespace pando {
namespace {

constexpr int kSocketsMax = 16384;  // a worker has one per server lane

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

std::string ZmqVersion() {
  const auto [major, minor, patch] = zmq::version();
  return fmt::format("{}.{}.{}", major, minor, patch);
}

}  // namespace pando
