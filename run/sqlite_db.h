// SqliteDb: SQLite's C interface with an owner and values. Used by SqliteJournal.
// Threads: none. Errors name the file and what SQLite says.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/status.h"

struct sqlite3;

namespace pando {

// NULL is monostate.
using SqlValue = std::variant<std::monostate, int64_t, double, std::string>;
using SqlRow = std::vector<SqlValue>;

class SqliteDb {
 public:
  // Opens or creates the file.
  static Result<SqliteDb> Open(std::string path);

  const std::string& path() const { return path_; }
  // One or more statements without results.
  Status Execute(const std::string& sql);
  // One statement; `values` are bound to its ?s in order. Returns all rows.
  Result<std::vector<SqlRow>> Query(const std::string& sql, std::span<const SqlValue> values = {});

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  explicit SqliteDb(std::string path) : path_(std::move(path)) {}
  Status Error() const;

  std::string path_;
  std::unique_ptr<sqlite3, Close> db_;
};

std::string SqliteVersion();  // "3.40.1", for `pando doctor`

}  // namespace pando
