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
    seat->is_known_ = seat->may_be_listed_ = true;
    seat->folder_ = lines[1];
    seat->term_ = ParseNumber<uint64_t>(lines[2]).value_or(0);
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

Result<std::optional<std::string>> Seat::ReadEnd() {
  PANDO_ASSIGN_OR_RETURN(const std::vector<EtcdRecord> found, client_.Get(prefix_ + "ended"));
  if (found.empty()) return std::optional<std::string>();
  return std::optional(found[0].value);
}

Result<Seat::Complete> Seat::ReadComplete() {
  PANDO_ASSIGN_OR_RETURN(const std::vector<EtcdRecord> found, client_.Get(prefix_ + "complete"));
  if (found.empty()) return Complete();
  return Complete{ReadFolders(found[0].value), found[0].mod_revision};
}

Result<std::optional<std::string>> Seat::ReadOwnEnd(bool begins) {
  PANDO_ASSIGN_OR_RETURN(const std::optional<std::string> end, ReadEnd());
  if (!end || (begins && !is_known_)) return std::optional<std::string>();
  PANDO_ASSIGN_OR_RETURN(const Complete complete, ReadComplete());
  return begins && complete.Has(folder()) ? std::optional<std::string>() : end;
}

Status Seat::Announce(const EtcdLease& lease, const std::string& endpoint) {
  const std::pair now{folder(), lease.id()};
  if (now == announced_) return Status();
  std::vector<EtcdOp> writes{EtcdPut{prefix_ + "standbys/" + now.first, endpoint, lease.id()}};
  if (!announced_.first.empty() && announced_.first != now.first)
    writes.push_back(EtcdDelete{prefix_ + "standbys/" + announced_.first, {}});
  PANDO_RETURN_IF_ERROR(client_.Transact({.success = std::move(writes)}).status());
  announced_ = now;
  return Status();
}

// The list of complete folders is read again once the election is won: from then on only this
// process changes it. A won election that may not be used ends with its lease.
Result<std::optional<Lead>> Seat::TryToLead(std::unique_ptr<EtcdLease>& lease, bool begins) {
  Complete complete;
  bool is_new = false;  // whether etcd has no run of this name, or only one that ended elsewhere
  const std::string own = folder();
  const auto may_lead = [&]() -> Result<bool> {
    PANDO_ASSIGN_OR_RETURN(complete, ReadComplete());
    PANDO_ASSIGN_OR_RETURN(const auto end, ReadEnd());
    is_new = !complete.Has(own) && !is_known_ && (complete.revision == 0 || end.has_value());
    return complete.Has(own) || (begins && is_new);
  };
  PANDO_ASSIGN_OR_RETURN(const bool may_try, may_lead());
  if (!may_try) return std::optional<Lead>();
  const std::string key = prefix_ + "leader";
  PANDO_ASSIGN_OR_RETURN(const EtcdElection election, Campaign(client_, *lease, key, own));
  if (!election.is_won) return std::optional<Lead>();
  const EtcdCompare ours{key, EtcdCompare::Revision::kCreate, election.create_revision};
  PANDO_ASSIGN_OR_RETURN(const bool may_still, may_lead());
  {
    // A session of another leader may have begun meanwhile, and the folder has another name then.
    const std::lock_guard lock(mutex_);
    term_ = std::max(term_, static_cast<uint64_t>(election.create_revision));
    may_be_listed_ = is_known_ = true;
    if (!may_still || folder_ != own || !Keep().ok()) {
      lease.reset();
      return std::optional<Lead>();
    }
  }
  std::vector<EtcdOp> writes{EtcdPut{prefix_ + "complete", WriteFolders({own})},
                             EtcdDelete{prefix_ + "standbys/" + own, {}},
                             EtcdDelete{prefix_ + "ended", {}}};
  if (is_new) {
    writes.insert(writes.end(), {EtcdDelete{prefix_ + "head", {}},
                                 EtcdDelete{prefix_ + "log/", prefix_ + "log0"}});
  }
  // The comparison of the list's revision keeps a late copy of this request from undoing a change.
  const EtcdCompare unchanged{prefix_ + "complete", EtcdCompare::Revision::kMod, complete.revision};
  PANDO_ASSIGN_OR_RETURN(const EtcdOutcome begun, client_.Transact({.compares = {ours, unchanged},
                                                                    .success = std::move(writes)}));
  if (!begun.has_succeeded) {
    lease.reset();
    return std::optional<Lead>();
  }
  announced_ = {};
  return std::optional(Lead{std::move(lease), ours});
}

}  // namespace pando
