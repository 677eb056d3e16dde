// The keys of a run, in folders for each of its roles.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <string>

#include "net/zmq/keys.h"
#include "tests/temp_folder.h"

namespace pando {

// A folder that `pando keys new` made, and folders that hold only what a role needs.
class RunKeys {
 public:
  RunKeys() : whole(temp_.File("keys")) { REQUIRE(MakeKeys(whole).ok()); }

  // A new folder with copies of these files.
  std::string Copy(const std::set<std::string>& names) {
    const std::string folder = temp_.File("copy-" + std::to_string(copy_count_++));
    std::filesystem::create_directory(folder);
    for (const std::string& name : names)
      std::filesystem::copy_file(whole + "/" + name, folder + "/" + name);
    return folder;
  }
  Keys Scheduler() {
    return Read(ReadSchedulerKeys(Copy({"admin.key", "member.pub", "reader.pub"})));
  }
  Keys Admin() { return Read(ReadKeys(Copy({"admin.key"}), KeyRole::kAdmin)); }
  Keys Member() { return Read(ReadKeys(Copy({"member.key", "admin.pub"}), KeyRole::kMember)); }
  Keys Reader() { return Read(ReadKeys(Copy({"reader.key", "admin.pub"}), KeyRole::kReader)); }
  // With the scheduler's public key, but with a member key that is not of this run.
  Keys Intruder() {
    Keys keys = Member();
    keys.Of(KeyRole::kMember) = DrawKeyPair();
    return keys;
  }

 private:
  static Keys Read(const Result<Keys>& keys) {
    REQUIRE_MESSAGE(keys.ok(), keys.status().message());
    return *keys;
  }
  TempFolder temp_;
  int copy_count_ = 0;

 public:
  const std::string whole;
};

}  // namespace pando
