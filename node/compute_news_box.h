// ComputeNewsBox carries events from the computing threads to the protocol thread. Gradients wake
// it only when they fill a message. The end of a call always wakes it, and follows the call's
// gradients, so none of them waits for ever. SessionWorker reads it.
#pragma once

#include <atomic>
#include <cstddef>
#include <tuple>
#include <utility>
#include <variant>

#include "common/mailbox.h"
#include "train/compute_port.h"
#include "worker/push_sender.h"

namespace pando {

class ComputeNewsBox {
 public:
  struct News {
    ComputeTicket ticket;
    ComputeEvent event;
  };
  // Any thread.
  void Push(ComputeTicket ticket, ComputeEvent event) {
    const auto* gradient = std::get_if<GradientReady>(&event);
    const size_t bytes = gradient == nullptr ? 0 : gradient->payload.size_bytes();
    const bool is_little = gradient != nullptr && (unseen_bytes_ += bytes) < PushGroups::kBytesMax;
    if (!is_little) unseen_bytes_ = 0;
    std::ignore = mailbox_.Push({ticket, std::move(event)}, is_little ? Wake::kLater : Wake::kNow);
  }
  // Returns a sink that calls Push. The box outlives it.
  ComputeSink sink() {
    return [this](ComputeTicket ticket, ComputeEvent event) { Push(ticket, std::move(event)); };
  }
  Mailbox<News>& mailbox() { return mailbox_; }

 private:
  std::atomic<size_t> unseen_bytes_ = 0;
  Mailbox<News> mailbox_;
};

}  // namespace pando
