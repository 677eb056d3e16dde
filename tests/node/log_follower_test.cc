#include "node/programs/log_follower.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "common/unique_fd.h"
#include "job/job_file.h"
#include "tests/contains.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

// The text that a follower of the file shows while `write_lines` runs.
std::string Shown(const TempFolder& temp, const std::string& path, const auto& write_lines) {
  const std::string captured = temp.File("shown");
  const UniqueFd before(dup(STDERR_FILENO));
  {
    const UniqueFd file(open(captured.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644));
    REQUIRE(dup2(file.get(), STDERR_FILENO) >= 0);
  }
  std::optional<LogFollower> follower;
  follower.emplace(std::vector<LogFollower::Log>{{"worker 0", path}});
  write_lines();
  follower.reset();
  REQUIRE(dup2(before.get(), STDERR_FILENO) >= 0);
  return *ReadTextFile(captured);
}

TEST_CASE("what a program prints is shown by line, without what was there and Pando's notes") {
  TempFolder temp;
  const std::string path = temp.File("log");
  std::ofstream(path) << "of an earlier run\n";
  const std::string shown = Shown(temp, path, [&] {
    std::ofstream file(path, std::ios::app);
    file << "epoch 1\n13:56:48.142 info [worker 0] pushed 960 bytes\n"
         << "13:56:48.142 warning [worker 0] denormals\n13:56 is lunch\n 10 %\r100 %\r\n\nno end "
            "of line";
  });
  CHECK(shown ==
        "[worker 0] epoch 1\n[worker 0] 13:56:48.142 warning [worker 0] denormals\n"
        "[worker 0] 13:56 is lunch\n[worker 0] 100 %\n[worker 0] \n[worker 0] no end of line\n");
}

TEST_CASE("a log that is made later is shown, and an endless line in parts") {
  TempFolder temp;
  const std::string path = temp.File("log");
  const std::string shown =
      Shown(temp, path, [&] { std::ofstream(path) << std::string(10'000, 'x') << '\n'; });
  CHECK(Contains(shown, "[worker 0] " + std::string(4096, 'x') + "\n[worker 0] xxx"));
  CHECK(std::ranges::count(shown, 'x') == 10'000);
}

}  // namespace
}  // namespace pando
