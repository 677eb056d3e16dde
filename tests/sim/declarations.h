// Declarations runs the beginning of one run whose model a program declares (P43): workers, a
// server and a scheduler, which are killed and stopped meanwhile. Intake, JoinCore, Scheduler and
// the codec are the real ones. Used by the simulator's main with --focus=declared.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/join_core.h"
#include "scheduler/declaration_intake.h"
#include "scheduler/scheduler.h"
#include "tests/scheduler/scheduler_fixture.h"
#include "tests/sim/cluster.h"
#include "tests/sim/member.h"

namespace pando::sim {

class Declarations {
 public:
  explicit Declarations(const Cluster::Options& options);
  ~Declarations();
  // Ends when each process has an answer after the last fault, or a rule is broken.
  Outcome Run();

 private:
  enum class Phase : uint8_t { kDead, kJoins, kIsMember, kHasLeft };
  struct Program {  // of one process; the first one is a server's
    Program(Declarations& story, Place place_in);
    const Place place;
    std::string model;  // what it declares; "": a server
    DeclaredRun declared;
    Phase phase = Phase::kDead;
    Incarnation self;
    ProcessLoops loops;
    const JoinCore* join = nullptr;
  };
  // The run folder. A crash keeps what is written.
  struct Folder {
    SharedBuffer init;  // init.safetensors
    std::string job;    // job.toml; empty: none
  };

  void Join(Program& program);
  void OnAnswer(Program& program);
  void Kill(Program& program);
  void StartScheduler();
  void KillScheduler();
  void Keep(DeclarationIntake& intake);
  void CheckWelcome(const Welcome& welcome);
  bool OnSent(Envelope& envelope);
  void Stop(ProcessLoops& loops);
  void Heal();
  void Fail(const std::string& what);
  bool IsOver() const;
  Program* Find(Incarnation incarnation) const;
  void Note(const std::string& text) const;

  World world_;
  Network network_;
  TestJournal journal_;
  Recorder observer_;
  Folder folder_;
  const JobPlan plan_;
  bool has_equal_versions_ = false;  // all programs make the same version 0
  double kill_share_ = 0;            // of the messages of a declaration: their sender is killed
  double stop_share_ = 0;
  std::vector<std::unique_ptr<Program>> programs_;
  ProcessLoops scheduler_loops_;
  Incarnation scheduler_;  // 0: it is dead
  uint64_t scheduler_life_ = 0;
  std::deque<std::pair<Place, Envelope>> waiting_;  // sent while there is no scheduler
  bool is_healed_ = false;
  Micros deadline_{0};
  std::string failure_;
};

}  // namespace pando::sim
