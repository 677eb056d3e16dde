#include "run/sqlite_db.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>
#include <utility>

namespace pando {
namespace {

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

struct Binder {
  sqlite3_stmt* statement;
  int index;  // from 1
  int operator()(std::monostate) const { return sqlite3_bind_null(statement, index); }
  int operator()(int64_t value) const { return sqlite3_bind_int64(statement, index, value); }
  int operator()(double value) const { return sqlite3_bind_double(statement, index, value); }
  int operator()(const std::string& value) const {
    return sqlite3_bind_text64(statement, index, value.data(), value.size(), SQLITE_TRANSIENT,
                               SQLITE_UTF8);
  }
};

SqlValue ReadColumn(sqlite3_stmt* statement, int column) {
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return int64_t{sqlite3_column_int64(statement, column)};
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement, column);
    case SQLITE_NULL:
      return std::monostate();
    default: {
      const void* bytes = sqlite3_column_blob(statement, column);
      const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
      return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
    }
  }
}

}  // namespace

void SqliteDb::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

Status SqliteDb::Error() const {
  const int code = sqlite3_errcode(db_.get());
  const std::string text = fmt::format("{}: {}", path_, sqlite3_errmsg(db_.get()));
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) return Corrupt(text);
  const int system = sqlite3_system_errno(db_.get());
  const bool is_io = code == SQLITE_IOERR || code == SQLITE_CANTOPEN;
  if (code == SQLITE_FULL || (is_io && (system == ENOSPC || system == EDQUOT)))
    return NoSpace(text + "; free some space");
  return Unavailable(text);
}

Result<SqliteDb> SqliteDb::Open(std::string path) {
  SqliteDb db(std::move(path));
  sqlite3* raw = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int code = sqlite3_open_v2(db.path_.c_str(), &raw, flags, nullptr);
  db.db_.reset(raw);
  if (code != SQLITE_OK) return db.Error();
  return db;
}

Status SqliteDb::Execute(const std::string& sql) {
  const int code = sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status() : Error();
}

Result<std::vector<SqlRow>> SqliteDb::Query(const std::string& sql,
                                            std::span<const SqlValue> values) {
  sqlite3_stmt* raw = nullptr;
  const int code =
      sqlite3_prepare_v2(db_.get(), sql.data(), static_cast<int>(sql.size()), &raw, nullptr);
  const Statement statement(raw);
  if (code != SQLITE_OK) return Error();
  for (size_t i = 0; i < values.size(); ++i) {
    const Binder binder{raw, static_cast<int>(i) + 1};
    if (std::visit(binder, values[i]) != SQLITE_OK) return Error();
  }
  std::vector<SqlRow> rows;
  int step = sqlite3_step(raw);
  for (; step == SQLITE_ROW; step = sqlite3_step(raw)) {
    SqlRow row;
    for (int c = 0; c < sqlite3_column_count(raw); ++c) row.push_back(ReadColumn(raw, c));
    rows.push_back(std::move(row));
  }
  if (step != SQLITE_DONE) return Error();
  return rows;
}

std::string SqliteVersion() { return sqlite3_libversion(); }

}  // namespace pando
