// Desk plays the parties outside of the run: it sends a supervisor's notes and a client's commands
// and repeats them until they are answered.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace pando::sim {

class Desk {
 public:
  Desk(World& world, Network& network, JobId job, Place place)
      : world_(world), network_(network), job_(job), place_(place) {}
  void Tell(FaultNote note);
  void Ask(Command command);
  void ForgetAll() { ++epoch_; }  // power off

 private:
  struct Letter {
    PeerId self;
    Message message;
    bool is_answered = false;
    uint64_t epoch = 0;
  };
  void Post(Message message);
  void Repeat(const std::shared_ptr<Letter>& letter);

  World& world_;
  Network& network_;
  JobId job_;
  Place place_;
  uint64_t notes_ = 0;
  uint64_t epoch_ = 0;
};

}  // namespace pando::sim
