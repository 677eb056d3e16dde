#include "tests/sim/storage/disk.h"

#include <algorithm>
#include <memory>

#include "common/hash.h"

namespace pando::sim {

Micros VirtualDisk::TimeOfOne() {
  const Micros time = Micros(1) + world_.chance().Until(time_max_);
  if (!is_troubled()) return time;
  const auto slow = static_cast<int64_t>(static_cast<double>(time.count()) * slowness_);
  return std::min(Micros(slow), troubled_until_ - world_.now() + time);
}

void VirtualDisk::Store(StoreRequest request, IsAlive is_alive, Done done) {
  const bool fails = is_troubled() && world_.chance().OneIn(failure_share_);
  auto held = std::make_shared<StoreRequest>(std::move(request));
  world_.After(TimeOfOne(), [=, this, is_alive = std::move(is_alive), done = std::move(done)] {
    if (!is_alive()) {
      ++lost_count_;
      return;
    }
    RecordStored event{.snapshot = held->snapshot, .shard = held->shard, .hash = held->hash};
    if (fails) {
      ++failed_count_;
      event.status = Unavailable("the simulated disk is full");
      return done(event);
    }
    event.file = "file-" + std::to_string(++file_count_);
    const auto copy = [](const SharedBuffer& buffer) {
      return buffer ? std::vector<float>(buffer->span().begin(), buffer->span().end())
                    : std::vector<float>();
    };
    Keep({held->snapshot, held->shard},
         {held->hash, event.file, copy(held->parameters), copy(held->state)});
    done(event);
  });
}

void VirtualDisk::Keep(const Key& key, Record record) {
  if (!record.parameters.empty() && FailsNow()) record.parameters[0] += 1;
  record.number = ++kept_count_;
  records_[key].push_back(std::move(record));
}

bool VirtualDisk::IsSound(Version version, const Record& record) {
  return RecordHash(version, record.parameters, record.state) == record.hash;
}

void VirtualDisk::Load(LoadRequest request, IsAlive is_alive, Done done) {
  world_.After(TimeOfOne(), [=, this, is_alive = std::move(is_alive), done = std::move(done)] {
    if (!is_alive()) return;
    RecordLoaded event{.snapshot = request.snapshot, .shard = request.shard};
    if (is_troubled() && world_.chance().OneIn(failure_share_)) {
      ++unread_count_;
      event.status = Unavailable("the simulated disk cannot be read");
      return done(event);
    }
    std::vector<Record> sound;
    if (const auto* found = Find(request.snapshot, request.shard)) {
      for (const Record& record : *found)
        if (IsSound(request.snapshot.version, record)) sound.push_back(record);
    }
    if (sound.empty()) {
      event.status = NotFound("the simulated disk has no such record");
      return done(event);
    }
    ++loaded_count_;
    const auto copy = [](const std::vector<float>& values) {
      auto buffer = std::make_shared<FloatBuffer>(values.size());
      std::copy(values.begin(), values.end(), buffer->data());
      return buffer;
    };
    const Record& record = sound[world_.chance().Below(sound.size())];
    event.parameters = copy(record.parameters);
    event.state = copy(record.state);
    done(event);
  });
}

SnapshotCheck VirtualDisk::Check(const SnapshotManifest& manifest) const {
  for (uint32_t s = 0; s < manifest.shards.size(); ++s) {
    const auto& [hash, file] = manifest.shards[s];
    const auto [key, record] = FindFile(file);
    const bool is_there = record != nullptr && key == Key{manifest.snapshot, ShardId(s)};
    if (!is_there || record->hash != hash || !IsSound(manifest.snapshot.version, *record))
      return {Corrupt(file + " does not hold the record that was reported"), ShardId(s)};
  }
  return {};
}

void VirtualDisk::Drop(const SnapshotManifest& manifest) {
  for (uint32_t s = 0; s < manifest.shards.size(); ++s) {
    const auto records = records_.find({manifest.snapshot, ShardId(s)});
    if (records == records_.end()) continue;
    std::erase_if(records->second,
                  [&](const Record& record) { return record.file == manifest.shards[s].file; });
    if (records->second.empty()) records_.erase(records);
  }
}

void VirtualDisk::LoseAllBut(uint64_t file_count) {
  for (auto& [key, records] : records_)
    std::erase_if(records, [&](const Record& record) { return record.number > file_count; });
  std::erase_if(records_, [](const auto& entry) { return entry.second.empty(); });
}

std::pair<VirtualDisk::Key, const VirtualDisk::Record*> VirtualDisk::FindFile(
    const std::string& file) const {
  for (const auto& [key, records] : records_) {
    const auto found = std::ranges::find(records, file, &Record::file);
    if (found != records.end()) return {key, &*found};
  }
  return {};
}

std::vector<std::string> VirtualDisk::Files() const {
  std::vector<std::string> files;
  for (const auto& [key, records] : records_) {
    for (const Record& record : records) files.push_back(record.file);
  }
  return files;
}

bool VirtualDisk::FailsNow() {
  const bool fails = is_troubled() && world_.chance().OneIn(failure_share_);
  failed_count_ += fails ? 1 : 0;
  return fails;
}

void VirtualDisk::Trouble(Micros until, double slowness, double failure_share) {
  troubled_until_ = until;
  slowness_ = slowness;
  failure_share_ = failure_share;
}

const std::vector<VirtualDisk::Record>* VirtualDisk::Find(SnapshotRef snapshot,
                                                          ShardId shard) const {
  const auto it = records_.find({snapshot, shard});
  return it == records_.end() ? nullptr : &it->second;
}

const std::optional<SchedulerState>& JournalDisk::Open(Incarnation leader) {
  leader_ = leader;
  return state_;
}

bool JournalDisk::Commit(Incarnation leader, const SchedulerState& state) {
  if (leader_ != leader || (state_ && state_->term > state.term)) return false;
  if (state_ && state_->view.id != state.view.id) {
    before_view_ = state_;
    view_at_ = world_.now();
  }
  state_ = state;
  return true;
}

bool JournalDisk::LoseNewestView(Micros now) {
  const bool has_view = before_view_ && before_view_->view.id.number != 0;
  if (!has_view || now - view_at_ > kLostMax) return false;
  // A member of the lost view that the journal does not know as ready would not report that again.
  const bool knows_all = std::ranges::all_of(state_->members, [&](const MemberRecord& member) {
    const auto& before = before_view_->members;
    const auto at = std::ranges::find(before, member.peer, &MemberRecord::peer);
    return !member.is_ready || at == before.end() || at->is_ready;
  });
  if (!knows_all) return false;
  state_ = std::exchange(before_view_, std::nullopt);
  leader_ = Incarnation();
  return true;
}

}  // namespace pando::sim
