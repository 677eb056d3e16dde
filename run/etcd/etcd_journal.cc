#include "run/etcd/etcd_journal.h"

#include <fmt/core.h>

#include <array>
#include <ranges>

#include "common/text.h"
#include "files/json_fields.h"
#include "proto/codec_fields.h"

namespace pando {
namespace {

// A commit that falls between the two steps of taking the lead makes it start again.
constexpr int kTakeLeadTriesMax = 100;

struct StoredEntry {
  std::vector<std::array<std::string, 3>> changed;  // section, key, value
  std::vector<std::array<std::string, 2>> removed;  // section, key
};
void Visit(auto io, StoredEntry& m) { io(PANDO_FIELD(m.changed), PANDO_FIELD(m.removed)); }

// Returns the end of the range of all keys that begin with the text.
std::string EndOfKeys(std::string text) {
  ++text.back();
  return text;
}

}  // namespace

void Visit(auto io, EtcdHead& m) {
  io(PANDO_FIELD(m.schema), PANDO_FIELD(m.term), PANDO_FIELD(m.leader), PANDO_FIELD(m.log),
     PANDO_FIELD(m.base), PANDO_FIELD(m.last));
}

EtcdJournal::EtcdJournal(EtcdOptions options, std::string prefix, uint64_t leader,
                         std::optional<EtcdCompare> election)
    : client_(std::move(options)),
      prefix_(std::move(prefix)),
      head_key_(prefix_ + "head"),
      place_("etcd's journal " + prefix_),
      leader_(leader),
      election_(std::move(election)) {}

std::string EtcdJournal::LogKey(const EtcdHead& head) const {
  return fmt::format("{}log/{}/{:010}/", prefix_, HexText(head.log.value()), head.base);
}

// ---- reading ------------------------------------------------------------------------------------

Result<std::optional<SchedulerState>> EtcdJournal::ReadState() {
  std::optional<SchedulerState> state;
  Status s = TakeLead(std::nullopt, &state);
  for (int tries = 1; s.code() == StatusCode::kAlreadyExists && tries < kTakeLeadTriesMax; ++tries)
    s = TakeLead(std::nullopt, &state);
  if (!s.ok()) return s;
  return state;
}

Status EtcdJournal::TakeLead(std::optional<uint64_t> term, std::optional<SchedulerState>* state) {
  if (is_fenced()) return fence_;
  if (entry_) PANDO_RETURN_IF_ERROR(WriteEntry());
  PANDO_ASSIGN_OR_RETURN(const std::vector<EtcdRecord> found, client_.Get(head_key_));
  is_read_ = found.empty();
  head_revision_ = found.empty() ? 0 : found[0].mod_revision;
  if (found.empty()) return Status();
  PANDO_ASSIGN_OR_RETURN(head_, ParseHead(found[0].value));
  if (term) PANDO_RETURN_IF_ERROR(CheckLeader(head_, *term));
  head_.leader = leader_;
  PANDO_ASSIGN_OR_RETURN(head_revision_, Write({EtcdPut{head_key_, JsonText(head_)}}));
  const Result<JournalRows> rows = ReadLog();
  const Status s = rows.ok() ? ReadRows(*rows, &state->emplace()) : rows.status();
  if (!s.ok()) return WithAdvice(place_, s);
  for (const JournalRow& row : *rows)
    if (row.first.section == "views") views_.insert(row);
  is_read_ = has_led_ = true;
  return Status();
}

Result<EtcdHead> EtcdJournal::ParseHead(const std::string& text) const {
  EtcdHead head{.schema = 0};
  Status s = ReadJson(text, &head, Missing::kKept);
  if (s.ok() && head.schema != kJournalSchemaVersion)
    return OtherSchema(place_, "records", std::to_string(head.schema), kJournalSchemaVersion);
  if (s.ok()) s = ReadJson(text, &head);
  if (s.ok() && head.last > kEntriesMax) s = Corrupt("last: is too large");
  if (!s.ok()) return WithAdvice(place_, Corrupt("head: " + s.message()));
  return head;
}

// The log does not change meanwhile, because this life leads.
Result<JournalRows> EtcdJournal::ReadLog() {
  const std::string log = LogKey(head_);
  PANDO_ASSIGN_OR_RETURN(const std::vector<EtcdRecord> pieces, client_.Get(log, EndOfKeys(log)));
  std::vector<std::string> entries(head_.last + 1);
  for (const EtcdRecord& piece : pieces) {
    const auto n =
        ParseNumber<uint32_t>(piece.key.substr(log.size(), piece.key.rfind('/') - log.size()));
    if (n && *n <= head_.last) entries[*n] += piece.value;
  }
  JournalRows rows;
  for (size_t n = 0; n < entries.size(); ++n) {
    StoredEntry entry;
    const Status s = ReadJson(entries[n], &entry);
    if (!s.ok()) return Corrupt(fmt::format("{}, entry {}: {}", log, n, s.message()));
    for (auto& [section, key, value] : entry.changed) rows[{section, key}] = std::move(value);
    for (const auto& [section, key] : entry.removed) rows.erase({section, key});
  }
  if (!rows.contains({"state", ""})) return Corrupt("section state is missing");
  return rows;
}

// ---- writing ------------------------------------------------------------------------------------

Status EtcdJournal::Commit(const SchedulerState& state) {
  if (is_fenced()) return fence_;
  if (entry_) PANDO_RETURN_IF_ERROR(WriteEntry());
  std::optional<SchedulerState> earlier;
  if (!is_read_) PANDO_RETURN_IF_ERROR(TakeLead(state.term, &earlier));
  if (head_revision_ != 0) PANDO_RETURN_IF_ERROR(CheckLeader(head_, state.term));
  MakeEntry(state);
  return WriteEntry();
}

void EtcdJournal::MakeEntry(const SchedulerState& state) {
  const bool is_base = !written_ || head_.last == kEntriesMax || entries_bytes_ >= kEntriesBytesMax;
  JournalChange change = MakeChange(is_base ? SchedulerState() : *written_, state);
  if (state.view.id != (written_ ? written_->view.id : ViewId())) {
    const JournalRow row = MakeRow(state.view);
    change.changed.insert(row);
    views_.insert(row);
    while (views_.size() > kJournalViewsKept) views_.erase(views_.begin());
  }
  if (is_base) {
    DropNeedlessViews();
    change.changed.insert(views_.begin(), views_.end());
  }
  StoredEntry stored;
  for (const auto& [key, value] : change.changed)
    stored.changed.push_back({key.section, key.key, value});
  for (const auto& [section, key] : change.removed) stored.removed.push_back({section, key});
  entry_ = {.state = state,
            .head = {.term = state.term,
                     .leader = leader_,
                     .log = leader_,
                     .base = is_base ? next_base_++ : head_.base,
                     .last = is_base ? 0 : head_.last + 1},
            .text = JsonText(stored)};
}

void EtcdJournal::DropNeedlessViews() {
  ShardHolders holders;
  JournalRows needed;
  for (const JournalRow& row : views_ | std::views::reverse) {
    View view;
    PANDO_CHECK(ReadJson(row.second, &view).ok());  // ReadRows has read it, or MakeRow made it
    if (!needed.empty() && view.generation != holders.generation) break;
    const auto lanes_of_newer = holders.lanes;
    holders.Add(view);
    if (needed.empty() || holders.lanes != lanes_of_newer) needed.insert(row);
  }
  views_ = std::move(needed);
}

Status EtcdJournal::WriteEntry() {
  const std::string key = fmt::format("{}{:010}/", LogKey(entry_->head), entry_->head.last);
  for (bool is_last = false; !is_last;) {
    const size_t from = entry_->confirmed_bytes;
    is_last = entry_->text.size() - from <= kPieceBytesMax;
    std::vector<EtcdOp> ops{EtcdPut{fmt::format("{}{:010}", key, from / kPieceBytesMax),
                                    entry_->text.substr(from, kPieceBytesMax)}};
    if (is_last) ops.push_back(EtcdPut{head_key_, JsonText(entry_->head)});
    PANDO_ASSIGN_OR_RETURN(const int64_t revision, Write(ops));
    if (is_last) head_revision_ = revision;
    entry_->confirmed_bytes += kPieceBytesMax;
  }
  has_led_ = true;
  head_ = entry_->head;
  entries_bytes_ = head_.last == 0 ? 0 : entries_bytes_ + entry_->text.size();
  written_ = std::move(entry_->state);
  entry_.reset();
  if (head_.last == 0) DeleteOldLogs();
  return Status();
}

// If this fails, the next base deletes them.
void EtcdJournal::DeleteOldLogs() {
  const std::string ours = LogKey(head_);
  const std::string all = prefix_ + "log/";
  (void)Write({EtcdDelete{all, ours}, EtcdDelete{EndOfKeys(ours), EndOfKeys(all)}});
}

Result<int64_t> EtcdJournal::Write(const std::vector<EtcdOp>& ops) {
  EtcdTransaction transaction{.compares = {{.key = head_key_, .revision = head_revision_}},
                              .success = ops,
                              .failure = {EtcdGet{head_key_}}};
  if (election_) transaction.compares.push_back(*election_);
  PANDO_ASSIGN_OR_RETURN(const EtcdOutcome outcome, client_.Transact(transaction));
  if (outcome.has_succeeded) return outcome.revision;
  const EtcdRecord head = outcome.records.empty() ? EtcdRecord() : outcome.records[0];
  const bool is_ours = entry_ && head.value == JsonText(entry_->head);
  if (!is_ours || head.mod_revision == head_revision_) return OnRefusal(head);
  head_revision_ = head.mod_revision;  // an earlier try of this entry; it is repeated unchanged
  return Write(ops);
}

// `head` has the revision 0 if it does not exist.
Status EtcdJournal::OnRefusal(const EtcdRecord& head) {
  const bool has_lost = head.mod_revision == head_revision_;  // so the election's key differs
  if (has_lost || head.mod_revision == 0) {
    fence_ = Unavailable(fmt::format(
        "{}: {}; this scheduler leaves", place_,
        has_lost ? "this scheduler no longer has " + election_->key : "its keys were deleted"));
    return fence_;
  }
  PANDO_ASSIGN_OR_RETURN(const EtcdHead other, ParseHead(head.value));
  if (entry_) PANDO_RETURN_IF_ERROR(CheckLeader(other, entry_->state.term));
  entry_.reset();
  written_.reset();
  is_read_ = false;
  return AlreadyExists(place_ + ": another scheduler wrote at the same time; try again");
}

Status EtcdJournal::CheckLeader(const EtcdHead& head, uint64_t term) {
  const bool is_us = head.leader == leader_;
  if (head.term <= term && (is_us || (head.term != term && !has_led_))) return Status();
  fence_ = FencedBy(place_, head.term, term);
  return fence_;
}

}  // namespace pando
