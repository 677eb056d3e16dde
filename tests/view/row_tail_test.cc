#include "view/row_tail.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/temp_folder.h"

namespace pando {
namespace {

void AppendText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

struct Reader {
  explicit Reader(const std::string& path) : tail(path) {}
  std::vector<std::string> Read() {
    std::vector<std::string> rows;
    tail.Read([&] { ++restart_count; }, [&](std::string_view row) { rows.emplace_back(row); });
    return rows;
  }
  RowTail tail;
  int restart_count = 0;
};

using Rows = std::vector<std::string>;

TEST_CASE("rows come once, and a row without its end later") {
  const TempFolder folder;
  const std::string path = folder.File("metrics.csv");
  Reader reader(path);
  CHECK(reader.Read().empty());
  AppendText(path, "one\ntwo\nthr");
  CHECK(reader.Read() == Rows{"one", "two"});
  CHECK(reader.Read().empty());
  AppendText(path, "ee\n\n");
  CHECK(reader.Read() == Rows{"three", ""});
  CHECK(reader.restart_count == 0);
}

TEST_CASE("a file that is emptied or replaced is read from its beginning") {
  const TempFolder folder;
  const std::string path = folder.File("metrics.csv");
  AppendText(path, "one\ntwo\n");
  Reader reader(path);
  reader.Read();
  std::filesystem::resize_file(path, 0);
  AppendText(path, "new\n");
  CHECK(reader.Read() == Rows{"new"});
  AppendText(folder.File("other"), "other\nfile\nwith more\n");
  std::filesystem::rename(folder.File("other"), path);
  CHECK(reader.Read() == Rows{"other", "file", "with more"});
  CHECK(reader.restart_count == 2);
}

TEST_CASE("a row that is too long is skipped, and the rows after it are read") {
  const TempFolder folder;
  const std::string path = folder.File("events.jsonl");
  AppendText(path, "first\n" + std::string(3 * RowTail::kRowBytesMax, 'x'));
  Reader reader(path);
  CHECK(reader.Read() == Rows{"first"});
  AppendText(path, "xxx\nlast\n");
  CHECK(reader.Read() == Rows{"last"});
}

}  // namespace
}  // namespace pando
