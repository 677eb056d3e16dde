#include "node/standby/standby_keeper.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/endpoint.h"
#include "common/stop_wait.h"

namespace pando {

StandbyKeeper::StandbyKeeper(Options options, Mirror& mirror)
    : options_(std::move(options)), mirror_(mirror), client_(options_.place.options) {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

StandbyKeeper::~StandbyKeeper() = default;

void StandbyKeeper::Run(const std::stop_token& stop) {
  do {
    Look();
  } while (WaitUnlessStopped(stop, kLookInterval));
}

bool StandbyKeeper::HasReached(const std::string& folder, uint64_t mark) const {
  const std::vector<std::string> reached = mirror_.ReachedBy(mark);
  return std::ranges::find(reached, folder) != reached.end();
}

bool StandbyKeeper::HasReached(uint64_t mark) const {
  const std::lock_guard lock(mutex_);
  const std::vector<std::string> reached = mirror_.ReachedBy(mark);
  return std::ranges::all_of(standbys_, [&](const auto& entry) {
    return !entry.second.is_awaited() || std::ranges::find(reached, entry.first) != reached.end();
  });
}

std::vector<SchedulerPlace> StandbyKeeper::Places() const {
  const std::lock_guard lock(mutex_);
  std::vector<SchedulerPlace> places;
  if (!own_endpoint_.empty()) places.push_back({own_endpoint_, "leads"});
  for (const auto& [folder, standby] : standbys_) {
    if (places.empty() || places.size() == kSchedulersMax) break;
    const bool is_listed = standby.stage == Stage::kListed;
    places.push_back({standby.endpoint, is_listed ? "may lead" : "gets the run folder"});
  }
  return places;
}

// Reads which standbys there are. While etcd does not answer, nothing changes.
void StandbyKeeper::Look() {
  const std::string prefix = options_.place.prefix + "schedulers/";
  const Result<std::vector<EtcdRecord>> found =
      client_.Get(prefix, options_.place.prefix + "schedulers0");
  if (!found.ok()) return;
  std::map<std::string, std::string> announced;
  for (const EtcdRecord& record : *found)
    announced[record.key.substr(prefix.size())] = record.value;
  const std::string own = announced[options_.folder];
  if (!own.empty() && own != own_endpoint_) Change([&] { own_endpoint_ = own; });
  announced.erase(options_.folder);
  mirror_.SetStandbys(announced);
  for (const auto& [folder, endpoint] : announced) {
    if (!standbys_.contains(folder)) Set(folder, {.endpoint = endpoint, .due = mirror_.Mark()});
  }
  const std::map<std::string, Standby> standbys = standbys_;  // only this thread changes them
  for (const auto& [folder, standby] : standbys)
    Follow(folder, standby, announced.contains(folder));
}

// Makes the next change of one standby's stage, if it is due. The leader waits for it before etcd
// has it in the list, and etcd has it out of the list before the leader stops to wait. A row that
// was acknowledged before the leader began to wait is in the folder before the mark made then.
void StandbyKeeper::Follow(const std::string& folder, Standby standby, bool is_there) {
  const std::optional<Micros> heard = mirror_.HeardAt(folder);
  if (!is_there || !heard || SteadyNow() - *heard > kSilence) {
    OnLost(folder, standby);
    if (!is_there && !standbys_.at(folder).is_awaited()) Change([&] { standbys_.erase(folder); });
    return;
  }
  if (standby.stage == Stage::kListed || !HasReached(folder, standby.due)) return;
  if (standby.stage == Stage::kFilled) {
    standby.stage = Stage::kAwaited;
    Set(folder, standby);
    standby.due = mirror_.Mark();
    return Set(folder, standby);
  }
  if (standby.stage == Stage::kAwaited) {
    if (!DoMembersKnow(standby.endpoint)) return;
    standby.stage = Stage::kListing;
    Set(folder, standby);
  }
  if (!WriteComplete(folder, true)) return;
  standby.stage = Stage::kListed;
  Set(folder, standby);
  options_.on_change("standby-ready", fmt::format("the standby at {} has everything and may lead",
                                                  standby.endpoint));
}

// Returns whether each member knows where this standby listens, and else asks for that. An answer
// is for this question alone: later members may not know.
bool StandbyKeeper::DoMembersKnow(const std::string& endpoint) {
  const std::vector<std::string> endpoints = EndpointsFor(Places());
  if (std::ranges::find(endpoints, endpoint) == endpoints.end()) return false;
  const uint64_t hash = HashEndpoints(endpoints);
  if (awaited_hash_.exchange(hash) != hash) known_hash_ = 0;
  if (known_hash_ != hash) return false;
  awaited_hash_ = known_hash_ = 0;
  return true;
}

void StandbyKeeper::OnLost(const std::string& folder, const Standby& standby) {
  if (!standby.is_awaited()) return;
  if (standby.stage >= Stage::kListing && !WriteComplete(folder, false)) return;
  Set(folder, {.endpoint = standby.endpoint, .due = mirror_.Mark()});
  options_.on_change("standby-lost", fmt::format("the standby at {} is silent: it may not lead "
                                                 "until it has everything again",
                                                 standby.endpoint));
}

void StandbyKeeper::Set(const std::string& folder, const Standby& standby) {
  Change([&] { standbys_[folder] = standby; });
}

void StandbyKeeper::Change(const std::function<void()>& change) {
  {
    const std::lock_guard lock(mutex_);
    change();
  }
  options_.on_change("", "");
}

// A request without an answer may be executed later. So each one compares the revision of the list
// that this thread knows, and a failed one reads it again.
bool StandbyKeeper::WriteComplete(const std::string& folder, bool is_in) {
  const std::string key = options_.place.prefix + "complete";
  if (!list_revision_) {
    const Result<std::vector<EtcdRecord>> found = client_.Get(key);
    if (!found.ok() || found->empty()) return false;
    list_revision_ = found->front().mod_revision;
  }
  std::vector<std::string> folders{options_.folder};
  for (const auto& [other, standby] : standbys_) {
    if (standby.stage == Stage::kListed && other != folder) folders.push_back(other);
  }
  if (is_in) folders.push_back(folder);
  const Result<EtcdOutcome> written = client_.Transact(
      {.compares = {options_.election, {key, EtcdCompare::Revision::kMod, *list_revision_}},
       .success = {EtcdPut{key, WriteFolders(folders)}}});
  const bool is_written = written.ok() && written->has_succeeded;
  list_revision_ = is_written ? std::optional(written->revision) : std::nullopt;
  return is_written;
}

bool StandbyKeeper::TellEnd(const std::string& how) {
  thread_ = {};  // joined; its client is free
  const Result<EtcdOutcome> written =
      client_.Transact({.compares = {options_.election},
                        .success = {EtcdPut{options_.place.prefix + "ended", how}}});
  return written.ok() && written->has_succeeded;
}

}  // namespace pando
