// Which users may read a run.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <tuple>
#include <vector>

#include "common/timeline/timeline.h"
#include "files/folder_files.h"
#include "run/output/metrics_file.h"
#include "run/run_folder.h"
#include "run/sqlite_journal.h"
#include "tests/run/job_in.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

fs::perms PermsFor(const std::string& path) { return fs::status(path).permissions(); }

TEST_CASE("a new run folder and its files are their owner's alone, unless the folder is shared") {
  using Access = RunFolder::Access;
  for (const auto& [access, mask, folder_mode, file_mode] :
       std::vector<std::tuple<Access, mode_t, unsigned, unsigned>>{
           {Access::kOwner, 0, 0700, 0600},
           {Access::kByUmask, 022, 0755, 0644},
           {Access::kByUmask, 027, 0750, 0640},
           {Access::kByUmask, 077, 0700, 0600}}) {
    CAPTURE(mask);
    const TempFolder temp;
    const mode_t before = umask(mask);
    const Job job = JobIn(temp.path() + "/runs/first/");
    const RunFolder folder = *RunFolder::Create(job, /*is_forced=*/false, access);
    REQUIRE(MetricsFile::Create(folder).ok());
    REQUIRE(folder.WriteEndpoint("tcp://127.0.0.1:1").ok());
    REQUIRE(FolderFiles(folder.SnapshotsPath()).Store("shard", {}).ok());
    REQUIRE(Timeline::Create({.folder = folder.TimelinePath(), .process = "worker 1"}).ok());
    {
      SqliteDb db = *SqliteDb::Open(folder.JournalPath());
      REQUIRE(db.Execute("PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1)")
                  .ok());
      CHECK(PermsFor(folder.JournalPath() + "-wal") == fs::perms(0600));
    }
    CHECK(PermsFor(temp.path() + "/runs") == fs::perms(0777 & ~mask));
    CHECK(PermsFor(folder.path()) == fs::perms(folder_mode));
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      CAPTURE(entry.path().string());
      const std::string name = entry.path().filename();
      const bool is_lock = name == ".lock" || name.starts_with("scheduler.db");
      const unsigned mode = is_lock ? 0600 : entry.is_directory() ? folder_mode : file_mode;
      CHECK(entry.status().permissions() == fs::perms(mode));
    }
    umask(before);
  }
}

TEST_CASE("a folder that exists keeps its mode, and its lock becomes its owner's alone") {
  const TempFolder temp;
  const std::string path = temp.path() + "/run";
  fs::create_directory(path);
  fs::permissions(path, fs::perms(0755));
  std::ofstream(path + "/.lock") << "x";
  fs::permissions(path + "/.lock", fs::perms(0644));
  const RunFolder folder = *RunFolder::Create(JobIn(path), /*is_forced=*/true);
  CHECK(PermsFor(path) == fs::perms(0755));
  CHECK(PermsFor(path + "/logs") == fs::perms(0755));
  CHECK(PermsFor(folder.JobPath()) == fs::perms(0644));
  CHECK(PermsFor(path + "/.lock") == fs::perms(0600));
}

}  // namespace
}  // namespace pando
