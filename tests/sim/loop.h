// Loop is one event loop of a simulated process: it hands a protocol core its messages and ticks in
// virtual time, as net/event_loop does with real ones. A stopped process's events wait in its
// inbox; continued, it takes them in turns with ticks between.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "proto/protocol_core.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace pando::sim {

class Loop {
 public:
  struct Hooks {  // each may be empty
    std::function<void()> after_event;
    std::function<void()> after_tick;
  };
  Loop(World& world, Network& network, Place place)
      : world_(world), outbox_(*this, network, place) {}

  Outbox& outbox() { return outbox_; }
  void SetCore(std::unique_ptr<ProtocolCore> core, Hooks hooks);

  // Runs the event on the loop's thread: now, unless the process is stopped.
  void Post(std::function<void()> event);
  void WakeSoon();
  void Stop() { is_stopped_ = true; }
  void Continue();
  // Nothing is handled and nothing leaves from now on.
  void Kill() { is_alive_ = false; }
  bool is_alive() const { return is_alive_; }
  ProtocolCore& core() { return *core_; }

 private:
  class LoopOutbox : public Outbox {
   public:
    LoopOutbox(Loop& loop, Network& network, Place place)
        : loop_(loop), network_(network), place_(place) {}
    void Send(Envelope envelope) override {
      if (loop_.is_alive_) network_.Send(place_, std::move(envelope));
    }

   private:
    Loop& loop_;
    Network& network_;
    Place place_;
  };
  void Run(const std::function<void()>& event);
  void Drain();
  void Tick();

  World& world_;
  LoopOutbox outbox_;
  std::unique_ptr<ProtocolCore> core_;
  Hooks hooks_;
  bool is_alive_ = true;
  bool is_stopped_ = false;
  bool is_tick_due_ = false;
  Micros wakes_at_ = kNever;
  std::deque<std::function<void()>> inbox_;
};

}  // namespace pando::sim
