#include "run/sqlite_journal.h"

#include <fmt/format.h>

#include <utility>

#include "run/journal_rows.h"

namespace pando {
namespace {

const JournalTable& TableNamed(const std::string& name) {
  for (const JournalTable& table : JournalTables()) {
    if (name == table.name) return table;
  }
  PANDO_CHECK(false);
  return JournalTables()[0];
}

std::string ColumnList(const JournalTable& table, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", table.columns[i]);
  return text;
}

std::string CreateStatement(const JournalTable& table) {
  return fmt::format("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({})) WITHOUT ROWID;",
                     table.name, ColumnList(table, table.columns.size()),
                     ColumnList(table, table.key_count));
}

std::string InsertStatement(const JournalTable& table) {
  std::string marks;
  for (size_t i = 0; i < table.columns.size(); ++i) marks += i == 0 ? "?" : ", ?";
  return fmt::format("INSERT OR REPLACE INTO {} VALUES ({})", table.name, marks);
}

std::string DeleteStatement(const JournalTable& table) {
  std::string condition;
  for (size_t i = 0; i < table.key_count; ++i) {
    condition += fmt::format("{}{} = ?", i == 0 ? "" : " AND ", table.columns[i]);
  }
  return fmt::format("DELETE FROM {} WHERE {}", table.name, condition);
}

SqlRow KeyOf(const JournalTable& table, const SqlRow& row) {
  return {row.begin(), row.begin() + static_cast<ptrdiff_t>(table.key_count)};
}

// Says what to do where the file itself is the trouble.
Status Explained(const std::string& path, const Status& status) {
  if (status.code() != StatusCode::kCorrupt) return status;
  return Corrupt(
      fmt::format("{} is damaged: {}; the run cannot continue from it. `pando export` still reads "
                  "the snapshots; "
                  "--force starts the run from the beginning",
                  path, status.message()));
}

}  // namespace

Result<SqliteJournal> SqliteJournal::Open(std::string path, uint64_t leader) {
  Result<SqliteDb> db = SqliteDb::Open(path);
  if (!db.ok()) return db.status();
  SqliteJournal journal(*std::move(db), leader);
  Status s = journal.SetUp();
  if (!s.ok()) return Explained(path, s);
  return journal;
}

Status SqliteJournal::SetUp() {
  Status s = db_.Execute(fmt::format("PRAGMA busy_timeout = {};", kBusyTimeoutMs));
  if (!s.ok()) return s;
  Result<std::vector<SqlRow>> version = db_.Query("PRAGMA user_version");
  if (!version.ok()) return version.status();
  const int64_t schema = std::get<int64_t>((*version)[0][0]);
  if (schema != 0 && schema != kSchemaVersion && schema != kSchemaWithPictures) {
    return InvalidArgument(
        fmt::format("{} has the tables of another release of Pando (schema {}, and this one has "
                    "{}); continue with "
                    "that release",
                    db_.path(), schema, kSchemaVersion));
  }
  Result<std::vector<SqlRow>> check = db_.Query("PRAGMA quick_check(1)");
  if (!check.ok()) return check.status();
  const auto* verdict = std::get_if<std::string>(&(*check)[0][0]);
  if (verdict == nullptr || *verdict != "ok") {
    return Corrupt(verdict == nullptr ? "quick_check" : *verdict);
  }
  s = db_.Execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
  if (!s.ok() || schema == kSchemaVersion) return s;  // a full disk must not keep a run's file shut
  if (schema == kSchemaWithPictures) return MigratePictures();
  std::string sql = "BEGIN IMMEDIATE;";
  for (const JournalTable& table : JournalTables()) sql += CreateStatement(table);
  sql += fmt::format("PRAGMA user_version = {}; COMMIT;", kSchemaVersion);
  return db_.Execute(sql);
}

// Schema 3 counted pictures that were replaced because they could not be decoded.
Status SqliteJournal::MigratePictures() {
  Result<std::vector<SqlRow>> rows =
      db_.Query("SELECT 1 FROM meta WHERE key = 'bad_pictures' AND value <> '[]'");
  if (!rows.ok()) return rows.status();
  if (!rows->empty()) {
    return InvalidArgument(
        fmt::format("{}: this run replaced pictures that cannot be decoded, and this release "
                    "leaves such pictures out instead (data.skip), which gives other weights; "
                    "continue with the release that began the run, or start a new run",
                    db_.path()));
  }
  return db_.Execute(fmt::format(
      "BEGIN IMMEDIATE; DELETE FROM meta WHERE key = 'bad_pictures'; PRAGMA user_version = {}; "
      "COMMIT;",
      kSchemaVersion));
}

// ---- reading ------------------------------------------------------------------------------------

Result<std::vector<SqlRow>> SqliteJournal::ReadTable(const std::string& name) {
  const JournalTable& table = TableNamed(name);
  return db_.Query(fmt::format("SELECT {} FROM {} ORDER BY {}",
                               ColumnList(table, table.columns.size()), table.name,
                               ColumnList(table, table.key_count)));
}

namespace {

// All rows of a table, in the order of its key.
template <class T>
Status ReadRows(const std::string& table, const Result<std::vector<SqlRow>>& rows,
                std::vector<T>* out) {
  if (!rows.ok()) return rows.status();
  for (const SqlRow& row : *rows) {
    Status s = ReadRow(row, &out->emplace_back());
    if (!s.ok()) return Corrupt(fmt::format("table {}, {}", table, s.message()));
  }
  return Status();
}

}  // namespace

Result<std::optional<SchedulerState>> SqliteJournal::ReadState() {
  if (Status s = db_.Execute("BEGIN IMMEDIATE"); !s.ok()) return Explained(db_.path(), s);
  Result<std::optional<SchedulerState>> state = ReadTables();
  if (state.ok() && state->has_value()) {
    const SqlRow row{"leader", fmt::format("{:016x}", leader_)};
    Result<std::vector<SqlRow>> done = db_.Query(InsertStatement(TableNamed("meta")), row);
    if (!done.ok()) state = Explained(db_.path(), done.status());
  }
  if (Status s = db_.Execute(state.ok() ? "COMMIT" : "ROLLBACK"); state.ok() && !s.ok())
    return Explained(db_.path(), s);
  has_taken_lead_ = state.ok() && state->has_value();
  return state;
}

Result<std::optional<SchedulerState>> SqliteJournal::ReadTables() {
  SchedulerState state;
  std::vector<View> views;
  Result<std::vector<SqlRow>> meta = ReadTable("meta");
  if (!meta.ok()) return Explained(db_.path(), meta.status());
  if (meta->empty()) return std::optional<SchedulerState>();
  for (const SqlRow& row : *meta) {
    Status s = ReadMetaRow(row, &state);
    if (!s.ok()) return Explained(db_.path(), Corrupt("table meta, " + s.message()));
  }
  for (const Status& s : {ReadRows("views", ReadTable("views"), &views),
                          ReadRows("members", ReadTable("members"), &state.members),
                          ReadRows("snapshots", ReadTable("snapshots"), &state.snapshots),
                          ReadRows("evaluations", ReadTable("evaluations"), &state.evaluations),
                          ReadRows("faults", ReadTable("faults"), &state.faults)}) {
    if (!s.ok()) return Explained(db_.path(), s);
  }
  if (!views.empty()) state.view = std::move(views.back());
  return std::optional<SchedulerState>(std::move(state));
}

// ---- writing ------------------------------------------------------------------------------------

Status SqliteJournal::Commit(const SchedulerState& state) {
  if (is_fenced()) return fence_;
  Status status = Write(state);
  if (!status.ok()) (void)db_.Execute("ROLLBACK");  // of a transaction that may not have begun
  return status;
}

Status SqliteJournal::CheckLeader(const SchedulerState& state) {
  Result<std::vector<SqlRow>> rows = ReadTable("meta");
  if (!rows.ok()) return rows.status();
  int64_t term = 0;
  std::string leader;
  for (const SqlRow& row : *rows) {
    const auto* key = std::get_if<std::string>(&row[0]);
    if (key == nullptr) continue;
    if (const auto* number = std::get_if<int64_t>(&row[1]); number && *key == "term")
      term = *number;
    if (const auto* text = std::get_if<std::string>(&row[1]); text && *key == "leader")
      leader = *text;
  }
  const auto ours = static_cast<int64_t>(state.term);
  const bool is_led_by_us = leader == fmt::format("{:016x}", leader_);
  const bool is_other = term > ours || (!is_led_by_us && (term == ours || has_taken_lead_));
  if (rows->empty() || !is_other) return Status();
  fence_ = Unavailable(fmt::format(
      "{}: another scheduler leads this run (term {}, and this one had {}); this one leaves",
      db_.path(), term, ours));
  return fence_;
}

SqliteJournal::Tables SqliteJournal::TablesOf(const SchedulerState& state) const {
  Tables tables;
  const auto add = [&](const char* name, SqlRow row) {
    SqlRow key = KeyOf(TableNamed(name), row);
    tables[name].emplace(std::move(key), std::move(row));
  };
  for (SqlRow& row : MetaRowsOf(state)) add("meta", std::move(row));
  add("meta", {"leader", fmt::format("{:016x}", leader_)});
  for (const MemberRecord& member : state.members) add("members", RowOf(member));
  for (const SnapshotManifest& manifest : state.snapshots) add("snapshots", RowOf(manifest));
  for (const EvaluationSummary& evaluation : state.evaluations) {
    add("evaluations", RowOf(evaluation));
  }
  for (const FaultRecord& fault : state.faults) add("faults", RowOf(fault));
  // A view never changes; its row is large, so it is made once.
  const SqlRow view_key{static_cast<int64_t>(state.view.id.term),
                        static_cast<int64_t>(state.view.id.number)};
  const auto views = written_.find("views");
  if (views != written_.end() && views->second.contains(view_key)) {
    tables["views"] = views->second;
  } else if (state.view.id != ViewId{}) {
    add("views", RowOf(state.view));
  }
  return tables;
}

Status SqliteJournal::Write(const SchedulerState& state) {
  if (Status s = db_.Execute("BEGIN IMMEDIATE"); !s.ok()) return s;
  if (Status s = CheckLeader(state); !s.ok()) return s;
  Tables tables = TablesOf(state);
  for (const JournalTable& table : JournalTables()) {
    if (Status s = WriteChanges(table.name, tables[table.name]); !s.ok()) return s;
  }
  if (Status s = db_.Execute("COMMIT"); !s.ok()) return s;
  written_ = std::move(tables);
  return Status();
}

// Views are added and only the oldest go; of other tables, rows that are no more go as well.
Status SqliteJournal::WriteChanges(const std::string& name, const Rows& rows) {
  const JournalTable& table = TableNamed(name);
  const bool is_history = name == "views";
  if (written_.empty() && !is_history) {  // the first commit of this life
    if (Status s = db_.Execute("DELETE FROM " + name); !s.ok()) return s;
  }
  const auto known = written_.find(name);
  const Rows before = known == written_.end() ? Rows() : known->second;
  bool has_added = false;
  for (const auto& [key, row] : before) {
    if (is_history || rows.contains(key)) continue;
    if (auto done = db_.Query(DeleteStatement(table), key); !done.ok()) return done.status();
  }
  for (const auto& [key, row] : rows) {
    const auto old = before.find(key);
    if (old != before.end() && old->second == row) continue;
    if (auto done = db_.Query(InsertStatement(table), row); !done.ok()) return done.status();
    has_added = true;
  }
  if (!is_history || !has_added) return Status();
  return db_.Execute(
      fmt::format("DELETE FROM views WHERE (term, number) NOT IN (SELECT term, number FROM views "
                  "ORDER BY term DESC, number DESC LIMIT {})",
                  kViewsKept));
}

}  // namespace pando
