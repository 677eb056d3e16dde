#include "node/standby/seat.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/atomic_file.h"
#include "common/hash.h"
#include "common/system.h"
#include "common/text.h"
#include "job/job_file.h"
#include "run/run_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// Returns whether a standby may fill the folder: nothing but the run's keys and lock is in it.
bool IsFree(const std::string& run_dir) {
  std::error_code ignored;  // a folder that is missing is free
  return std::ranges::all_of(fs::directory_iterator(run_dir, ignored), [](const auto& entry) {
    const std::string name = entry.path().filename();
    return name == ".lock" || name == "keys" || name == "logs";
  });
}

}  // namespace

std::vector<std::string> ReadFolders(const std::string& text) {
  const auto folders = SplitText(text, '\n');
  return {folders.begin(), folders.end()};
}

std::string WriteFolders(const std::vector<std::string>& folders) {
  std::string text;
  for (const std::string& folder : folders) text += folder + "\n";
  return text;
}

Result<std::unique_ptr<Seat>> Seat::Open(const EtcdPlace& place, const std::string& run_dir,
                                         bool is_standby) {
  std::unique_ptr<Seat> seat(new Seat(place, run_dir));
  if (const Result<std::string> text = ReadTextFile(seat->path_); text.ok()) {
    const std::vector<std::string> lines = ReadFolders(*text);
    if (lines.size() != 3 || lines[0] != place.prefix) {
      return InvalidArgument(fmt::format(
          "{} is of the run {}, and --etcd-prefix names {}: give another run folder, or that "
          "prefix",
          run_dir, lines.empty() ? "" : lines[0], place.prefix));
    }
    seat->may_be_listed_ = true;
    seat->folder_ = lines[1];
    seat->term_ = ParseNumber<uint64_t>(lines[2]).value_or(0);
    seat->is_known_ = seat->term_ != 0;
    return seat;
  }
  if (is_standby && !IsFree(run_dir)) {
    return InvalidArgument(fmt::format(
        "{} has files of something else, and a standby's folder gets those of its run: give "
        "--run-dir a new folder",
        run_dir));
  }
  std::error_code error;
  fs::create_directories(run_dir, error);
  seat->folder_ = HexText(NewIncarnation().value());
  PANDO_RETURN_IF_ERROR(seat->Keep());
  return seat;
}

Status Seat::Keep() const {
  return WriteFileAtomically(path_, WriteFolders({prefix_, folder_, std::to_string(term_)}),
                             FileAccess::kAsFolder);
}

bool Seat::BeginSession(uint64_t term) {
  const std::lock_guard lock(mutex_);
  if (term < term_) return false;
  const bool may_begin = !may_be_listed_;
  if (!may_begin) folder_ = HexText(NewIncarnation().value());
  term_ = term;
  may_be_listed_ = may_begin;  // once the session has filled the folder, etcd's list may have it
  const bool is_kept = Keep().ok();
  if (!is_kept && !may_begin) may_be_listed_ = true;
  return is_kept && may_begin;
}

// Reads the three keys in one request that changes nothing: schedulers ask again and again.
Result<Seat::Facts> Seat::Read() {
  EtcdTransaction reads;
  for (const char* name : {"complete", "ended", "leader"})
    reads.success.emplace_back(EtcdGet{prefix_ + name});
  PANDO_ASSIGN_OR_RETURN(const EtcdOutcome outcome, client_.Transact(reads));
  Facts facts;
  for (const EtcdRecord& record : outcome.records) {
    const std::string name = record.key.substr(prefix_.size());
    if (name == "complete") {
      facts.folders = ReadFolders(record.value);
      facts.revision = record.mod_revision;
    } else if (name == "ended") {
      facts.end = record.value;
    } else {
      facts.leader_lease = record.lease;
    }
  }
  return facts;
}

Status Seat::Announce(const EtcdLease& lease, const std::string& endpoint) {
  const std::pair now{folder(), lease.id()};
  if (now == announced_) return Status();
  std::vector<EtcdOp> writes{EtcdPut{prefix_ + "schedulers/" + now.first, endpoint, lease.id()}};
  if (!announced_.first.empty() && announced_.first != now.first)
    writes.push_back(EtcdDelete{prefix_ + "schedulers/" + announced_.first, {}});
  PANDO_RETURN_IF_ERROR(client_.Transact({.success = std::move(writes)}).status());
  announced_ = now;
  return Status();
}

// Returns why this folder may not lead.
std::string Seat::WhyNot(const Facts& facts) const {
  if (facts.revision == 0 && is_known_) {
    return fmt::format(
        "etcd has lost this run, there is nothing below {}: restore etcd, or begin again with "
        "--force",
        prefix_);
  }
  if (facts.revision == 0) return "the run has not begun";
  return fmt::format(
      "other folders have everything of the run {}, and the one that leads fills this one; if none "
      "does, start a scheduler in one of them; another run needs another --etcd-prefix",
      prefix_);
}

bool Seat::BeginsRun(const Facts& facts, MayBegin may_begin) const {
  const bool is_free = facts.revision == 0 || facts.end || may_begin == MayBegin::kAnyRun;
  return may_begin != MayBegin::kNone && is_free && !is_known_ && !facts.Has(folder());
}

// The list of complete folders is read again once the election is won: from then on only this
// process changes it. A won election that may not be used ends with its lease.
Result<Turn> Seat::TryToLead(std::unique_ptr<EtcdLease>& lease, MayBegin may_begin) {
  const std::string own = folder();
  PANDO_ASSIGN_OR_RETURN(Facts facts, Read());
  bool is_new = BeginsRun(facts, may_begin);
  const bool begins_again = may_begin != MayBegin::kNone && facts.Has(own);
  if (facts.end && !is_new && !begins_again) return Turn(RunEnded{*facts.end});
  if (!is_new && !facts.Has(own)) return Turn(StandsBy{WhyNot(facts)});
  // An earlier try of this process may have won, without an answer.
  const bool has_other = facts.leader_lease != 0 && facts.leader_lease != lease->id();
  if (has_other && may_begin == MayBegin::kAnyRun) {
    return InvalidArgument(
        fmt::format("--force: another scheduler leads the run {}; stop all of its schedulers and "
                    "wait for {} s, or give another --etcd-prefix",
                    prefix_, EtcdLease::kLeaseSeconds.count()));
  }
  const auto other_leads = [] { return Turn(StandsBy{"another scheduler leads"}); };
  if (has_other) return other_leads();
  const std::string key = prefix_ + "leader";
  PANDO_ASSIGN_OR_RETURN(const EtcdElection election, Campaign(client_, *lease, key, own));
  if (!election.is_won) return other_leads();
  const EtcdCompare ours{key, EtcdCompare::Revision::kCreate, election.create_revision};
  PANDO_ASSIGN_OR_RETURN(facts, Read());
  is_new = BeginsRun(facts, may_begin);
  {
    // A session of another leader may have begun meanwhile, and the folder has another name then.
    const std::lock_guard lock(mutex_);
    const bool may_still = is_new || facts.Has(own);
    term_ = std::max(term_, static_cast<uint64_t>(election.create_revision));
    may_be_listed_ = true;
    const bool is_ours = may_still && folder_ == own;
    const Status kept = is_ours ? Keep() : Status();
    if (!is_ours || !kept.ok()) lease.reset();
    if (!kept.ok()) return kept;
    if (!is_ours) return other_leads();
  }
  std::vector<EtcdOp> writes{EtcdPut{prefix_ + "complete", WriteFolders({own})},
                             EtcdDelete{prefix_ + "ended", {}}};
  if (is_new) {
    writes.insert(writes.end(), {EtcdDelete{prefix_ + "head", {}},
                                 EtcdDelete{prefix_ + "log/", prefix_ + "log0"}});
  }
  // The comparison of the list's revision keeps a late copy of this request from undoing a change.
  const EtcdCompare unchanged{prefix_ + "complete", EtcdCompare::Revision::kMod, facts.revision};
  PANDO_ASSIGN_OR_RETURN(const EtcdOutcome begun, client_.Transact({.compares = {ours, unchanged},
                                                                    .success = std::move(writes)}));
  if (!begun.has_succeeded) {
    lease.reset();
    return other_leads();
  }
  is_known_ = true;
  announced_ = {};
  return Turn(Lead{std::move(lease), ours});
}

}  // namespace pando
