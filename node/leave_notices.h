// How a process of a run says that the run has ended for it, and how its Supervisor receives that.
// The process may go on afterwards, outside of the run: a program's script may go on after its
// loop for hours, and its exit code is then the script's, not that of a death.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/descriptor.h"
#include "proto/messages.h"

namespace pando {

// LeaveNotices receives the notices of the processes of one supervisor, on a Unix socket without a
// file. Threads: one. Without a socket (too many open files) no notice arrives.
class LeaveNotices {
 public:
  LeaveNotices();

  // "NAME=value": every process of the supervisor needs it in its environment.
  const std::string& variable() const { return variable_; }
  int fd() const { return socket_.get(); }  // readable: there are notices to take; -1: never
  // Takes what has arrived. The keys of processes are secrets of this user.
  void Take();
  // How the run ended for the process with this ProcessKey(); none if it has not said so.
  std::optional<Stop> Find(uint64_t key) const;

 private:
  UniqueFd socket_;
  std::string variable_;
  std::map<uint64_t, Stop> notices_;  // by the process's key
};

// Says to this process's supervisor, if it has one, how the run has ended for it.
void SendLeaveNotice(const Stop& stop);

}  // namespace pando
