// A leader's mirror and its standbys over real sockets.
#include "node/standby/mirror.h"

#include <poll.h>

#include <atomic>
#include <deque>
#include <thread>

#include "tests/node/standby/standby_thread.h"

namespace pando {
namespace {

bool HasReached(const Mirror& mirror, uint64_t mark, const std::string& folder) {
  const std::vector<std::string> reached = mirror.ReachedBy(mark);
  return std::ranges::count(reached, folder) != 0;
}

// Waits for the mirror's descriptor until the standby has reached the mark.
void MustReach(Mirror& mirror, uint64_t mark, const std::string& folder) {
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (!HasReached(mirror, mark, folder)) {
    REQUIRE(SteadyNow() < deadline);
    pollfd news{mirror.fd(), POLLIN, 0};
    poll(&news, 1, 1000);
    mirror.Clear();
  }
}

TEST_CASE("a mirror fills two standbys with large and thousands of small files") {
  ZmqContext context;
  const MirroredFolder leader, first_folder, second_folder;
  leader.Replace("final.safetensors", CountingText(50'000'000));
  for (int i = 0; i < 2000; ++i)
    leader.Append("snapshots/g000-" + std::to_string(i), CountingText(i % 50 * 7, i));
  leader.Append("metrics.csv", CountingText(1'000'001));
  const StandbyThread first(context, first_folder), second(context, second_folder);
  const auto mirror = MustStart(context, leader);
  CHECK(mirror->ReachedBy(0).empty());
  mirror->SetStandbys({{"one", first.endpoint()}, {"two", second.endpoint()}});
  const uint64_t mark = mirror->Mark();
  MustReach(*mirror, mark, "one");
  MustReach(*mirror, mark, "two");
  CHECK(first_folder.Content() == leader.Content());
  CHECK(second_folder.Content() == leader.Content());
  CHECK(mirror->ReachedBy(0) == std::vector<std::string>{"one", "two"});
  CHECK(mirror->ReachedBy(mark + 1).empty());
  CHECK(mirror->HeardAt("one").has_value());
}

TEST_CASE("a standby that has reached a mark has all rows that were there") {
  ZmqContext context;
  const MirroredFolder leader, folder;
  const StandbyThread standby(context, folder);
  const auto mirror = MustStart(context, leader);
  mirror->SetStandbys({{"one", standby.endpoint()}});
  struct Marked {
    uint64_t mark;
    size_t rows, log_bytes;
  };
  std::mutex mutex;
  std::deque<Marked> marked;
  std::atomic<bool> is_stopping = false;
  std::thread writer([&] {
    for (size_t rows = 0; !is_stopping; ++rows) {
      leader.Append("metrics.csv", "row\n");
      if (rows % 3 == 0) leader.Append("logs/worker-0.log", "line of a log\n");
      if (rows % 50 == 0) leader.Replace("summary.json", std::to_string(rows));
      const uint64_t mark = mirror->Mark();
      const std::lock_guard lock(mutex);
      marked.push_back({mark, 4 * (rows + 1), 14 * (rows / 3 + 1)});
    }
  });
  size_t checked_count = 0;
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (checked_count < 2000) {
    REQUIRE(SteadyNow() < deadline);
    pollfd news{mirror->fd(), POLLIN, 0};
    poll(&news, 1, 1000);
    mirror->Clear();
    const std::lock_guard lock(mutex);
    std::optional<Marked> reached;
    for (; !marked.empty() && HasReached(*mirror, marked.front().mark, "one"); marked.pop_front()) {
      reached = marked.front();
      ++checked_count;
    }
    if (!reached) continue;
    CHECK(std::filesystem::file_size(folder.File("metrics.csv")) >= reached->rows);
    CHECK(std::filesystem::file_size(folder.File("logs/worker-0.log")) >= reached->log_bytes);
  }
  is_stopping = true;
  writer.join();
  MustReach(*mirror, mirror->Mark(), "one");
  CHECK(folder.Content() == leader.Content());
}

TEST_CASE("a standby that restarts at its endpoint gets everything again") {
  ZmqContext context;
  const MirroredFolder leader, folder;
  leader.Append("metrics.csv", "row\n");
  const auto mirror = MustStart(context, leader);
  auto standby = std::make_unique<StandbyThread>(context, folder);
  const std::string endpoint = standby->endpoint();
  mirror->SetStandbys({{"one", endpoint}});
  MustReach(*mirror, mirror->Mark(), "one");
  standby.reset();
  leader.Append("metrics.csv", "another row\n");
  const uint64_t mark = mirror->Mark();
  standby = std::make_unique<StandbyThread>(context, folder, endpoint);
  MustReach(*mirror, mark, "one");
  CHECK(folder.Content() == leader.Content());
}

TEST_CASE("a leader that dies in the middle is followed by another one") {
  ZmqContext context;
  const MirroredFolder first_leader, second_leader, folder;
  first_leader.Replace("final.safetensors", CountingText(30'000'000));
  second_leader.Append("metrics.csv", "row\n");
  second_leader.Replace("snapshots/a", "a");
  const StandbyThread standby(context, folder);
  auto mirror = MustStart(context, first_leader);
  mirror->SetStandbys({{"one", standby.endpoint()}});
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (!folder.Has("final.safetensors.tmp") && !folder.Has("final.safetensors"))
    REQUIRE(SteadyNow() < deadline);
  mirror = MustStart(context, second_leader);
  mirror->SetStandbys({{"one", standby.endpoint()}});
  MustReach(*mirror, mirror->Mark(), "one");
  CHECK(folder.Content() == second_leader.Content());
  CHECK(!folder.Has("final.safetensors.tmp"));
}

TEST_CASE("a dropped standby has reached nothing and gets nothing") {
  ZmqContext context;
  const MirroredFolder leader, first_folder, second_folder;
  leader.Append("metrics.csv", "row\n");
  const StandbyThread first(context, first_folder), second(context, second_folder);
  const auto mirror = MustStart(context, leader);
  mirror->SetStandbys({{"one", first.endpoint()}, {"none", "tcp://127.0.0.1:1"}, {"bad", "there"}});
  MustReach(*mirror, mirror->Mark(), "one");
  CHECK(!mirror->HeardAt("none"));
  CHECK(!mirror->HeardAt("bad"));
  CHECK(!mirror->HeardAt("unknown"));
  mirror->SetStandbys({{"one", second.endpoint()}});  // it runs elsewhere now
  CHECK(mirror->ReachedBy(1).empty());
  leader.Append("metrics.csv", "another row\n");
  MustReach(*mirror, mirror->Mark(), "one");
  CHECK(first_folder.Text("metrics.csv") == "row\n");
  CHECK(second_folder.Text("metrics.csv") == "row\nanother row\n");
  mirror->SetStandbys({});
  CHECK(mirror->ReachedBy(1).empty());
  CHECK(!mirror->HeardAt("one"));
}

TEST_CASE("a mirror with the admin's keys reaches a standby with the run's keys") {
  const Keys keys = DrawKeys();
  ZmqContext leaders(keys), standbys(keys);
  const MirroredFolder leader, folder;
  leader.Append("metrics.csv", "row\n");
  const StandbyThread standby(standbys, folder);
  const auto mirror = MustStart(leaders, leader);
  mirror->SetStandbys({{"one", standby.endpoint()}});
  MustReach(*mirror, mirror->Mark(), "one");
  CHECK(folder.Content() == leader.Content());
}

TEST_CASE("a mirror needs a folder") {
  ZmqContext context;
  const TempFolder temp;
  const auto mirror = Mirror::Start({.context = context, .run_dir = temp.File("none"), .term = 7});
  CHECK(mirror.status().code() == StatusCode::kNotFound);
}

}  // namespace
}  // namespace pando
