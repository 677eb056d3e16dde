#include "view/file_watch.h"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/temp_folder.h"

namespace pando {
namespace {

// When what was changed just now is not new any more.
FileWatch::WallTime Later() { return std::chrono::system_clock::now() + std::chrono::minutes(1); }

TEST_CASE("a file changes when it is made, replaced by one of the same size, and removed") {
  const TempFolder folder;
  const std::string path = folder.File("job.toml");
  FileWatch watch(path);
  CHECK(watch.HasChanged());
  CHECK_FALSE(watch.HasChanged());
  std::ofstream(path) << "one";
  CHECK(watch.HasChanged());
  CHECK(watch.HasChanged());  // what is written now may get the same time
  CHECK(watch.HasChanged(Later()));
  CHECK_FALSE(watch.HasChanged(Later()));
  std::ofstream(folder.File("other")) << "two";
  std::filesystem::rename(folder.File("other"), path);
  CHECK(watch.HasChanged(Later()));
  CHECK_FALSE(watch.HasChanged(Later()));
  std::filesystem::remove(path);
  CHECK(watch.HasChanged());
  CHECK_FALSE(watch.HasChanged());
}

TEST_CASE("a folder changes with its files' names") {
  const TempFolder folder;
  // Else the folder and its file may get the same time.
  std::filesystem::last_write_time(folder.path(), std::filesystem::file_time_type());
  FileWatch watch(folder.path());
  CHECK(watch.HasChanged(Later()));
  CHECK_FALSE(watch.HasChanged(Later()));
  std::ofstream(folder.File("worker-0.log")) << "one";
  CHECK(watch.HasChanged(Later()));
}

}  // namespace
}  // namespace pando
