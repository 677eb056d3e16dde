// Seat is one scheduler's place in a run whose schedulers meet in etcd: a leader and its standbys.
// Each has its run folder; a file in it, ".etcd", names the folder and the run. The keys of the run
// in etcd, below its prefix ("/pando/NAME/"):
//
//   leader          the folder of the leader, with the lease of its process: the election
//   complete        the folders that have everything of the run, in lines: only these may lead
//   schedulers/FOLDER
//                   the endpoint of a leader or a standby, with the lease of its process
//   ended           the run has ended so; the standbys leave
//   head, log/...   the journal (run/etcd/etcd_journal.h)
//
// A standby's folder loses its name before a leader's session removes what it has (P47), because
// etcd's list may still have the name: the folder goes on under a new one.
//
// Threads: one for requests to etcd; folder() and BeginSession() may be called by another one.
// Errors are those of EtcdClient, and kInvalidArgument for a folder that does not belong to the
// run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "run/etcd/etcd_lease.h"
#include "run/run_folder.h"

namespace pando {

// How the schedulers of a run reach etcd, and the name of the run there.
struct EtcdPlace {
  EtcdOptions options;
  std::string prefix;  // ends with '/'
};

// A won election. The leader's process keeps it while it leads.
struct Lead {
  std::unique_ptr<EtcdLease> lease;
  EtcdCompare election;  // every write of the leader compares it
};

// Which run a scheduler may begin in etcd.
enum class MayBegin : uint8_t {
  kNone,    // a standby
  kNewRun,  // one that etcd does not have, or only its end
  kAnyRun,  // and one whose schedulers are gone (--force)
};

// A scheduler may not lead now.
struct StandsBy {
  std::string why;  // for people
};

// The run has ended, and this scheduler has no part in another one.
struct RunEnded {
  std::string how;
};

using Turn = std::variant<Lead, RunEnded, StandsBy>;

class Seat {
 public:
  // Reads RUN_DIR/.etcd, or creates it. A standby's folder must be empty or have this file.
  static Result<std::unique_ptr<Seat>> Open(const EtcdPlace& place, const std::string& run_dir,
                                            bool is_standby);

  std::string folder() const {
    const std::lock_guard lock(mutex_);
    return folder_;
  }
  // Returns whether the leader of this term may begin a session in the folder now. If not, it is an
  // earlier leader, or the folder has got another name, which the leader will learn.
  bool BeginSession(uint64_t term);

  // Tells the leader where this standby listens, until the lease ends. Does nothing if the leader
  // can know it.
  Status Announce(const EtcdLease& lease, const std::string& endpoint);
  // Leads if no other process does, and this folder may or it may begin the run. A run that has
  // ended begins again only with a scheduler that may begin it, in a folder that has everything, or
  // in a new folder.
  Result<Turn> TryToLead(std::unique_ptr<EtcdLease>& lease, MayBegin may_begin);

 private:
  struct Facts {                       // in etcd
    std::vector<std::string> folders;  // those that have everything
    int64_t revision = 0;              // of their list; 0: the run has not begun
    std::optional<std::string> end;
    int64_t leader_lease = 0;  // 0: no scheduler leads
    bool Has(const std::string& folder) const {
      return std::ranges::find(folders, folder) != folders.end();
    }
  };
  Seat(const EtcdPlace& place, const std::string& run_dir)
      : client_(place.options), prefix_(place.prefix), path_(SeatPath(run_dir)) {}

  Status Keep() const;  // writes the file
  Result<Facts> Read();
  std::string WhyNot(const Facts& facts) const;
  bool BeginsRun(const Facts& facts, MayBegin may_begin) const;

  EtcdClient client_;
  const std::string prefix_;
  const std::string path_;
  bool is_known_ = false;  // the folder has had a part in the run: it has led, or was filled
  mutable std::mutex mutex_;
  std::string folder_;
  uint64_t term_ = 0;                          // of the last session, or of the own lead
  bool may_be_listed_ = false;                 // etcd's list may have folder_
  std::pair<std::string, int64_t> announced_;  // the folder, and the lease
};

// Splits and joins the lines of the key "complete".
std::vector<std::string> ReadFolders(const std::string& text);
std::string WriteFolders(const std::vector<std::string>& folders);

}  // namespace pando
