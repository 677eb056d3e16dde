// EtcdJournal keeps the scheduler's state in etcd (P25, P26), so that a scheduler on another
// machine can continue the run. It serves the scheduler process.
//
// Keys below the run's prefix, such as "/pando/NAME/":
//
//   head                   EtcdHead as JSON: which life of the scheduler leads, and which log
//   counts log/LOG/BASE/N/I       piece I of entry N. Numbers have leading zeros, so that the keys
//   sort.
//
// An entry is a change of rows (run/journal_rows) as JSON; entry 0 of a base has all rows. A large
// entry has several pieces. A commit writes its last piece and the head in one transaction. Every
// transaction compares the head's revision with the one that this life knows. So a life that does
// not lead writes nothing, and pieces that the head does not name do not count. After some entries
// the next commit writes a new base, and then deletes the older logs.
//
// A transaction without an answer may have been executed. The next commit repeats it first, and
// finds out. A base has the newest view, and of its generation those that ShardHolders needs.
//
// Threads: none. Invariant: of two lives of the scheduler only one can commit: the one that read
// the journal last, or the one with the higher term, or the first to write it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "run/etcd/etcd_client.h"
#include "run/journal_rows.h"
#include "run/stored_journal.h"

namespace pando {

struct EtcdHead {
  int schema = kJournalSchemaVersion;
  uint64_t term = 0;
  Incarnation leader;  // the life that leads
  Incarnation log;     // the life that wrote the log
  uint32_t base = 0;   // of that life
  uint32_t last = 0;   // the log's last entry
};

class EtcdJournal : public StoredJournal {
 public:
  static constexpr uint32_t kEntriesMax = 64;                  // after a base
  static constexpr size_t kEntriesBytesMax = size_t{4} << 20;  // after a base
  static constexpr size_t kPieceBytesMax = size_t{1} << 20;

  // `prefix` ends with '/'. `leader` is the incarnation of this life of the scheduler. If it won an
  // election, every transaction requires that `election` is still true.
  EtcdJournal(EtcdOptions options, std::string prefix, uint64_t leader,
              std::optional<EtcdCompare> election = std::nullopt);

  Result<std::optional<SchedulerState>> ReadState() override;
  Status Commit(const SchedulerState& state) override;
  bool is_fenced() const override { return !fence_.ok(); }
  std::string place() const override { return "etcd"; }

 private:
  // The entry that a commit writes, until etcd has confirmed it.
  struct Entry {
    SchedulerState state;
    EtcdHead head;
    std::string text;
    size_t confirmed_bytes = 0;  // whole pieces
  };

  // Reads the journal and takes the lead. A life with a term must have a right to lead with it.
  Status TakeLead(std::optional<uint64_t> term, std::optional<SchedulerState>* state);
  Result<JournalRows> ReadLog();
  void MakeEntry(const SchedulerState& state);
  void DropNeedlessViews();
  Status WriteEntry();
  // Returns etcd's revision after the write.
  Result<int64_t> Write(const std::vector<EtcdOp>& ops);
  Status OnRefusal(const EtcdRecord& head);
  Status CheckLeader(const EtcdHead& head, uint64_t term);
  Result<EtcdHead> ParseHead(const std::string& text) const;
  std::string LogKey(const EtcdHead& head) const;
  void DeleteOldLogs();

  EtcdClient client_;
  const std::string prefix_;
  const std::string head_key_;
  const std::string place_;  // for errors
  const Incarnation leader_;
  const std::optional<EtcdCompare> election_;
  Status fence_;
  bool is_read_ = false;
  bool has_led_ = false;
  EtcdHead head_;
  int64_t head_revision_ = 0;  // 0: there is none
  uint32_t next_base_ = 0;
  size_t entries_bytes_ = 0;               // after the base
  JournalRows views_;                      // the newest kJournalViewsKept at most
  std::optional<SchedulerState> written_;  // in the last commit of this life
  std::optional<Entry> entry_;
};

}  // namespace pando
