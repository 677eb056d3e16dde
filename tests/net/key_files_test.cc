// The files of keys: which are made and read, and which are refused.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "common/atomic_file.h"
#include "tests/contains.h"
#include "tests/net/run_keys.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

mode_t ModeFor(const std::string& path) {
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

std::string BytesFor(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::map<std::string, std::string> FilesIn(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    files.emplace(entry.path().filename(), entry.path().string());
  for (auto& [name, content] : files) content = BytesFor(content);
  return files;
}

TEST_CASE("new keys are six files in a folder of their owner, with secrets that only it may read") {
  const TempFolder temp;
  const std::string folder = temp.File("of/a/cluster");
  REQUIRE(MakeKeys(folder + "/").ok());
  CHECK(ModeFor(folder) == 0700);
  const auto files = FilesIn(folder);
  CHECK(files.size() == 6);
  for (const char* role : {"admin", "member", "reader"}) {
    CAPTURE(role);
    CHECK(ModeFor(folder + "/" + role + ".key") == 0600);
    CHECK(files.at(std::string(role) + ".key").size() == 41);  // 40 letters and a newline
    CHECK(files.at(std::string(role) + ".pub").size() == 41);
  }
  const Result<Keys> keys = ReadSchedulerKeys(folder);
  REQUIRE(keys.ok());
  CHECK(keys->role() == KeyRole::kAdmin);
}

TEST_CASE("keys are not made where something is, and nothing is left beside it") {
  const TempFolder temp;
  const std::string folder = temp.File("keys");
  REQUIRE(MakeKeys(folder).ok());
  const auto before = FilesIn(folder);
  const Status again = MakeKeys(folder);
  CHECK(again.code() == StatusCode::kAlreadyExists);
  CHECK(Contains(again.message(), folder));
  CHECK(FilesIn(folder) == before);

  const std::string file = temp.Write("file", {1});
  CHECK(MakeKeys(file).code() == StatusCode::kAlreadyExists);
  CHECK(BytesFor(file) == "\x01");
  CHECK(std::distance(fs::directory_iterator(temp.path()), {}) == 2);

  // An empty folder may have been made for them, and is closed to others.
  const std::string empty = temp.File("empty");
  fs::create_directory(empty);
  REQUIRE(MakeKeys(empty).ok());
  CHECK(ModeFor(empty) == 0700);
  CHECK(FilesIn(empty).size() == 6);
}

void CheckUnreadable(const Result<Keys>& keys, const std::string& what) {
  CAPTURE(what);
  REQUIRE(!keys.ok());
  CHECK_MESSAGE(Contains(keys.status().message(), what), keys.status().message());
}

TEST_CASE("each role reads a folder with what it needs, and a missing file is named") {
  RunKeys run;
  CHECK(run.Scheduler().role() == KeyRole::kAdmin);
  CHECK(run.Member().role() == KeyRole::kMember);
  CHECK(run.Reader().role() == KeyRole::kReader);
  CHECK(ReadKeys(run.whole, KeyRole::kMember)->role() == KeyRole::kAdmin);
  // A member may also read the status.
  CHECK(ReadKeys(run.Copy({"member.key", "admin.pub"}), KeyRole::kReader).ok());

  CheckUnreadable(ReadKeys(run.whole + "-none", KeyRole::kReader), run.whole + "-none");
  CheckUnreadable(ReadKeys(run.whole + "/admin.key", KeyRole::kAdmin), "admin.key is no folder");
  CheckUnreadable(ReadKeys(run.Copy({"reader.key", "admin.pub"}), KeyRole::kMember),
                  "has no member.key");
  CheckUnreadable(ReadKeys(run.Copy({"member.key", "admin.pub"}), KeyRole::kAdmin),
                  "has no admin.key");
  CheckUnreadable(ReadKeys(run.Copy({"admin.pub", "reader.pub"}), KeyRole::kReader),
                  "has no reader.key");
  CheckUnreadable(ReadKeys(run.Copy({"member.key"}), KeyRole::kMember), "has no admin.pub");
  CheckUnreadable(ReadSchedulerKeys(run.Copy({"admin.key", "reader.pub"})), "has no member.pub");
}

TEST_CASE("a file that is no key, or that others may read, is named") {
  RunKeys run;
  const auto member_folder = [&] { return run.Copy({"member.key", "member.pub", "admin.pub"}); };
  const auto read = [](const std::string& folder) { return ReadKeys(folder, KeyRole::kMember); };

  for (const mode_t mode : {0640, 0604, 0620}) {
    const std::string path = member_folder() + "/member.key";
    REQUIRE(chmod(path.c_str(), mode) == 0);
    CheckUnreadable(read(fs::path(path).parent_path()), path + " is a secret key");
  }
  for (const mode_t mode : {0777, 0757, 0702}) {
    const std::string folder = member_folder();
    REQUIRE(chmod(folder.c_str(), mode) == 0);
    CheckUnreadable(read(folder), "all users may write to " + folder);
    REQUIRE(chmod(folder.c_str(), mode | S_ISVTX) == 0);  // only an owner may replace a file
    CHECK(read(folder).ok());
  }
  const std::string key = BytesFor(run.whole + "/member.key");
  for (const std::string& garbage :
       {std::string(), std::string("no key\n"), key + "x", key.substr(1), key.substr(0, 39) + "\"",
        key.substr(0, 35) + std::string(5, '\0'), std::string(100'000, '0')}) {
    for (const char* name : {"/member.key", "/member.pub", "/admin.pub"}) {
      const std::string folder = member_folder();
      std::ofstream(folder + name, std::ios::binary | std::ios::trunc) << garbage;
      CheckUnreadable(read(folder), folder + name + " holds no key");
    }
  }
  const std::string with_folder = run.Copy({"admin.pub"});
  fs::create_directory(with_folder + "/member.key");
  fs::permissions(with_folder + "/member.key", fs::perms::owner_all);
  CheckUnreadable(read(with_folder), with_folder + "/member.key");

  const std::string mixed = member_folder();
  fs::copy_file(run.whole + "/reader.pub", mixed + "/member.pub",
                fs::copy_options::overwrite_existing);
  CheckUnreadable(read(mixed), "member.pub is not the public part of");
}

TEST_CASE("keys and folders of another user are named") {
  if (geteuid() != 0) {
    MESSAGE("SKIPPED: only root can give files to another user");
    return;
  }
  RunKeys run;
  for (const char* name : {"", "/member.key", "/member.pub", "/admin.pub"}) {
    const std::string folder = run.Copy({"member.key", "member.pub", "admin.pub"});
    REQUIRE(chown((folder + name).c_str(), 65532, static_cast<gid_t>(-1)) == 0);
    CheckUnreadable(ReadKeys(folder, KeyRole::kMember), folder + name + " belongs to user 65532");
  }
}

TEST_CASE("a scheduler keeps one secret, and a process with keys leaves no core file") {
  RunKeys run;
  const rlimit before{.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
  REQUIRE(setrlimit(RLIMIT_CORE, &before) == 0);
  const Keys keys = *ReadSchedulerKeys(run.whole);
  rlimit after{};
  getrlimit(RLIMIT_CORE, &after);
  CHECK(after.rlim_cur == 0);
  for (const KeyRole role : {KeyRole::kReader, KeyRole::kMember, KeyRole::kAdmin}) {
    CHECK(IsPublicKey(keys.Of(role).public_key));
    CHECK(keys.Of(role).secret_key.empty() == (role != KeyRole::kAdmin));
  }
  CHECK(keys.role() == KeyRole::kAdmin);
}

}  // namespace
}  // namespace pando
