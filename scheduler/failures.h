// What processes and supervisors report of failures: a member that another one does not hear, a
// member that cannot continue, a process that ended. Part of the scheduler core. Threads: none.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "scheduler/snapshot_requests.h"

namespace pando {

// Silences decides which process has to go when a pair of members does not hear each other while
// the scheduler hears both (P23).
//
//   the pair                          | what happens
//   ----------------------------------+------------------------------------------------------------
//   a worker and a server             | one of them is declared dead: the server if others do
//                                     | not hear it either, else the worker
//   two primaries, which need each    | the same; the reporter counts as the worker
//   other's partial values (P16)      |
//   a primary and its backup          | the backup loses the primary's shards
class Silences {
 public:
  explicit Silences(RunFacts& run) : run_(run) {}  // `run` outlives this

  void OnPeerSilent(Micros now, const PeerId& from, const PeerSilent& silent);
  // A process that did not hear some server twice, and joins again, is avoided for a while.
  void OnWelcome(Micros now, const Member& member);
  void Forget(NodeId node);

  // The members that get no new work now.
  std::set<NodeId> Avoided(Micros now) const;
  // Requests a view for the time when a member gets work again.
  void RequestViews(Micros now);
  // Takes the backups that did not answer out of the next view. They are reported once.
  void ApplyTo(View& next);
  void StartGeneration() { silent_backups_.clear(); }

 private:
  struct Silence {  // between a worker's process and a server
    Micros at{0};   // last reported
    uint32_t count = 0;
  };

  bool Counts(const Member& reporter) const;
  void OnSilentBackup(Micros now, const Member& primary, const Member& backup,
                      const std::string& text);
  void OnSilentPair(Micros now, const Member& reporter, const Member& server);
  Micros Memory() const;
  bool IsOftenSilent(Micros now, const Register& registration) const;

  RunFacts& run_;
  // By server, of workers' processes: they join again under other names.
  std::map<NodeId, std::map<ProcessName, Silence>> silences_;
  std::set<std::pair<NodeId, NodeId>> silent_backups_;  // primary's server, backup's
  std::map<NodeId, Micros> avoided_until_;
};

// Failures handles members that cannot continue, and processes that ended.
class Failures {
 public:
  // Both outlive this.
  Failures(RunFacts& run, LastSnapshot& last_snapshot) : run_(run), last_snapshot_(last_snapshot) {}

  void OnFailure(Micros now, const Envelope& envelope, const Failure& failure);
  // A supervisor reports a fault that it made, or a process that ended: the fastest of notices.
  void OnFaultNote(Micros now, const PeerId& from, const FaultNote& note);

 private:
  struct Trouble {
    FailureKind kind;
    std::string host;
    Version committed;  // by then
  };
  static constexpr size_t kFailedMax = 64;

  bool EndsRun(const Member& member, const Failure& failure);
  bool ConcernsAll(const Member& member, FailureKind kind);
  void NoteFailed(const ProcessName& process, const std::string& text);

  RunFacts& run_;
  LastSnapshot& last_snapshot_;
  std::optional<Trouble> trouble_;  // the last
  // Processes that were removed because they cannot continue, and why.
  std::map<ProcessName, std::string> failed_;
};

}  // namespace pando
