// This header lets a process of a run tell its Supervisor that the run has ended for it. The
// process may go on afterwards, outside of the run: a program's script may go on after its loop for
// hours. Its exit code is then the script's, and its exit is no death.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/unique_fd.h"
#include "proto/messages.h"

namespace pando {

// LeaveNotices receives the notices of the processes of one supervisor, on a Unix socket without a
// file. Threads: one. Without a socket (too many open files) no notice arrives.
class LeaveNotices {
 public:
  LeaveNotices();

  // "NAME=value", which each process of the supervisor needs in its environment.
  const std::string& variable() const { return variable_; }
  int fd() const { return socket_.get(); }  // readable when notices wait; -1: no socket
  // Takes the notices that have arrived. Only this user knows the keys of the processes.
  void Take();
  // Returns how the run ended for the process with this ProcessKey(); none if it sent no notice.
  std::optional<Stop> Find(uint64_t key) const;

 private:
  UniqueFd socket_;
  std::string variable_;
  std::map<uint64_t, Stop> notices_;  // by the process's key
};

// Tells this process's supervisor, if it has one, how the run has ended for it.
void SendLeaveNotice(const Stop& stop);

}  // namespace pando
