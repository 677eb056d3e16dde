// KeyFolders: keys of `pando keys new`, as a user gives each process what it needs, for end-to-end
// tests; and RunPando, for commands that end by themselves.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string>

#include "common/exit_codes.h"
#include "tests/e2e/process.h"

namespace pando {

// The output of a command that ends by itself.
struct Said {
  int exit_code = -1;
  std::string out;
  std::string err;
};

inline Said RunPando(const std::string& folder, const std::string& name, const Args& args,
                     const Args& through = {}) {
  Process process(folder, name, args, through);
  process.Await();
  return {process.exit_code(), process.out(), process.err()};
}

// A folder of `pando keys new`, and copies that hold only what a role needs.
struct KeyFolders {
  explicit KeyFolders(const std::string& folder) : whole(folder + "/keys") {
    const Said made = RunPando(folder, "keys", {"keys", "new", whole});
    REQUIRE_MESSAGE(made.exit_code == kExitCompleted, made.err);
    CHECK(Contains(made.out, whole));
    for (const auto& [copy, names] :
         std::map<std::string, Args>{{scheduler, {"admin.key", "member.pub", "reader.pub"}},
                                     {admin, {"admin.key"}},
                                     {member, {"member.key", "admin.pub"}},
                                     {reader, {"reader.key", "admin.pub"}}}) {
      std::filesystem::create_directory(copy);
      for (const std::string& name : names)
        std::filesystem::copy_file(whole + "/" + name, copy + "/" + name);
    }
  }
  const std::string whole;
  const std::string scheduler = whole + "-scheduler";
  const std::string admin = whole + "-admin";
  const std::string member = whole + "-member";
  const std::string reader = whole + "-reader";
};

}  // namespace pando
