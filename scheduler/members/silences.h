// Silences decides which process is removed when two members do not hear each other while the
// scheduler hears both (P23).
//
//   the pair                          | what happens
//   ----------------------------------+------------------------------------------------------------
//   a worker and a server             | one of them is declared dead: the server if others do
//                                     | not hear it either, else the worker
//   two primaries, which need each    | the same; the reporter counts as the worker
//   other's partial values (P16)      |
//   a primary and its backup          | the backup loses the primary's shards
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "scheduler/members/run_members.h"

namespace pando {

class Silences : SchedulerPart {
 public:
  Silences(const SchedulerPart& part, const RunProgress& progress, RunMembers& membership)
      : SchedulerPart(part), progress_(progress), membership_(membership) {}

  void OnPeerSilent(Micros now, const PeerId& from, const PeerSilent& silent);
  // Avoids the new member for a while, if its process did not hear some server twice.
  void OnWelcome(Micros now, const Member& member);
  void Forget(NodeId node);

  // Returns the members that get no new work now.
  std::set<NodeId> Avoided(Micros now) const;
  // Requests a view for the time when an avoided member may get work again.
  void RequestViews(Micros now);
  // Takes the backups that did not answer out of the next view, once.
  void ApplyTo(View& next);
  void StartGeneration() { silent_backups_.clear(); }

 private:
  struct Complaints {  // of a process that does not hear a server
    Micros at{0};      // of the last one
    uint32_t count = 0;
  };

  bool Counts(const Member& reporter) const;
  void OnSilentBackup(Micros now, const Member& primary, const Member& backup,
                      const std::string& text);
  void OnSilentPair(Micros now, const Member& reporter, const Member& server);
  Micros Memory() const;
  bool IsOftenSilent(Micros now, const Register& registration) const;

  const RunProgress& progress_;
  RunMembers& membership_;
  // By server, then by the reporter's process, which may join again as another member.
  std::map<NodeId, std::map<ProcessName, Complaints>> complaints_;
  std::set<std::pair<NodeId, NodeId>> silent_backups_;  // the primary's server, the backup's server
  std::map<NodeId, Micros> avoided_until_;
};

}  // namespace pando
