#include "cli/watch/top_screen.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "run/output/metrics_file.h"
#include "tests/contains.h"

namespace pando {
namespace {

std::string NodeJson(const std::string& name, const std::string& more = "") {
  return fmt::format(R"({{"name":"{}","host":"h","activity":"computing"{}}})", name, more);
}

std::string StatusJson(uint64_t second, uint64_t step, const std::string& nodes,
                       const std::string& more = "") {
  return fmt::format(R"({{"model":"mlp","dataset":"mnist","phase":"training","step":{},)"
                     R"("step_count":200,"clock_us":{},"nodes":[{}]{}}})",
                     step, second * 1'000'000, nodes, more);
}

std::string Text(const TopScreen& screen, TopSize size = {24, 100}) {
  std::string text;
  for (const TopLine& line : screen.Draw(size)) text += line.text + "\n";
  return text;
}

std::string BarText(const TopScreen& screen, TopSize size) {
  for (const TopLine& line : screen.Draw(size)) {
    if (line.style == TopStyle::kChosen) return line.text;
  }
  return "";
}

TEST_CASE("the screen shows the run, its processes and what each one waits for") {
  TopScreen screen("runs/first");
  const std::string waits =
      R"(,"health":"suspect","waiting_for":"server 1","waiting_ms":5,"silent_ms":7)";
  REQUIRE(
      screen.TakeStatus(StatusJson(1, 50, NodeJson("worker 0") + "," + NodeJson("worker 1", waits),
                                   R"(,"waiting_for":"worker 1")")));
  screen.TakeRow(MetricsRow{.loss = 0.25, .accuracy = 0.5, .images_per_second = 1234});
  const std::string text = Text(screen);
  CHECK(
      text.starts_with("pando top runs/first\n"
                       "mlp on mnist: training, step 50 of 200 (25.0 %)\n"
                       "loss 0.25, accuracy 50.00 %, 1234 images/s\n"
                       "waits: worker 1\n"));
  CHECK(Contains(text, "suspect, computing from server 1 for 5 ms"));
  CHECK(Contains(text, "q quit"));
  CHECK(!Contains(text, "FAULTS"));
  CHECK(!Contains(text, "no answer"));
}

TEST_CASE("the process that keeps the run from its next step is below the status, as an error") {
  TopScreen screen("r");
  const std::string stall =
      R"(,"stall":{"waited_for":"server 1","text":"no step for 1.5 s: worker 0 waits for server 1 )"
      R"((parameters of step 12)\u001b[2J"})";
  REQUIRE(screen.TakeStatus(StatusJson(1, 50, NodeJson("worker 0"), stall)));
  const std::vector<TopLine> lines = screen.Draw(TopScreen::kSizeMin);
  CHECK(lines[2].text == "no step for 1.5 s: worker 0 waits for server 1 (");
  CHECK(lines[2].style == TopStyle::kError);
  CHECK(Contains(Text(screen),
                 "\nno step for 1.5 s: worker 0 waits for server 1 (parameters of step 12)?[2J\n"));
  REQUIRE(screen.TakeStatus(StatusJson(2, 51, NodeJson("worker 0"))));
  CHECK(!Contains(Text(screen), "no step"));
}

TEST_CASE("the rate of steps begins again after a rollback") {
  TopScreen screen("r");
  REQUIRE(screen.TakeStatus(StatusJson(1, 50, "")));
  REQUIRE(screen.TakeStatus(StatusJson(3, 60, "")));
  CHECK(Contains(Text(screen), ", 5.0 steps/s\n"));
  REQUIRE(screen.TakeStatus(StatusJson(3, 60, "")));  // the same answer again
  CHECK(Contains(Text(screen), ", 5.0 steps/s\n"));
  REQUIRE(screen.TakeStatus(StatusJson(4, 20, "")));
  CHECK(!Contains(Text(screen), "steps/s"));
}

TEST_CASE("text from the wire is printable and fits on the screen") {
  TopScreen screen("r");
  const std::string hostile = R"(,"waiting_for":"\u001b[2J\n\u0007\u009b1mh\u00e9\u4e16)" +
                              std::string(10'000, 'x') + R"(")";
  REQUIRE(screen.TakeStatus(StatusJson(1, 1, NodeJson(R"(a\u001b[31m)", hostile), hostile)));
  screen.TakeNotice("\x1b]0;title\x07\xff");
  screen.TakeSilence(3, "\r\n\x7f");
  for (const TopLine& line : screen.Draw({24, 80})) {
    CHECK(line.text.size() <= 80);
    CHECK(std::ranges::all_of(line.text, [](char c) { return c >= ' ' && c <= '~'; }));
  }
  CHECK(Contains(Text(screen), "waits: ?[2J???1mh??xxx"));
}

TEST_CASE("the choice stays with its process, and the screen shows it") {
  const auto nodes = [](int first, int end) {
    std::string text;
    for (int i = first; i < end; ++i)
      text += (text.empty() ? "" : ",") + NodeJson(fmt::format("worker {}", i));
    return text;
  };
  TopScreen screen("r");
  CHECK(screen.chosen().empty());
  screen.MoveChoice(1);
  REQUIRE(screen.TakeStatus(StatusJson(1, 1, nodes(0, 40))));
  CHECK(screen.chosen() == "worker 0");
  screen.MoveChoice(30);
  CHECK(screen.chosen() == "worker 30");
  CHECK(BarText(screen, {20, 90}).starts_with("worker 30 "));
  CHECK(BarText(screen, {20, 90}).size() == 90);
  REQUIRE(screen.TakeStatus(StatusJson(2, 1, nodes(10, 40))));
  CHECK(screen.chosen() == "worker 30");
  screen.MoveChoice(100);
  CHECK(screen.chosen() == "worker 39");
  REQUIRE(screen.TakeStatus(StatusJson(3, 1, nodes(10, 12))));  // it has left
  CHECK(screen.chosen() == "worker 11");
  screen.MoveChoice(-100);
  CHECK(screen.chosen() == "worker 10");
  REQUIRE(screen.TakeStatus(StatusJson(4, 1, "")));
  CHECK(screen.chosen().empty());
}

TEST_CASE("faults are below the processes, and those that last are marked") {
  TopScreen screen("r");
  const std::string faults =
      R"(,"fault_count":2,"faults":[{"id":1,"target":"worker 1","action":"kill","step":7,"detected_ms":20,)"
      R"("detected_by":"exit","recovered_ms":50},{"id":2,"target":"server 0","action":"stop","step":8}])";
  REQUIRE(screen.TakeStatus(StatusJson(1, 9, NodeJson("worker 0"), faults)));
  CHECK(Contains(Text(screen),
                 "\nFAULTS: 2, the newest first\n2    server 0     stop at step 8, not noticed "
                 "yet\n1    worker 1     kill at step 7, noticed by exit, recovered 30 ms after "
                 "its detection\n"));
  const std::vector<TopLine> lines = screen.Draw({24, 80});
  CHECK(std::ranges::count(lines, TopStyle::kWarning, &TopLine::style) == 1);
}

TEST_CASE("the end of a run is shown instead of its processes, until it goes on") {
  TopScreen screen("r");
  Summary summary;
  summary.status = kStatusInterrupted;
  summary.steps = 60;
  screen.TakeEnd(summary);
  CHECK(Contains(Text(screen), "the run has ended: interrupted after 60 steps\n"));
  REQUIRE(screen.TakeStatus(StatusJson(1, 50, NodeJson("worker 0"))));
  CHECK(!Contains(Text(screen), "ended"));
  screen.TakeSilence(3, "pando status r says why");
  screen.TakeEnd(summary);
  CHECK(Contains(Text(screen), "mlp on mnist: ended, step 60 of 200 (30.0 %)\n"));
  CHECK(!Contains(Text(screen), "worker 0"));
  CHECK(!Contains(Text(screen), "no answer"));
  CHECK(screen.chosen().empty());
  summary.failure = "the disk is broken";
  screen.TakeEnd(summary);
  CHECK(Contains(Text(screen), "after 60 steps: the disk is broken\n"));
}

TEST_CASE("a column stays where it is when the texts left of it become shorter") {
  TopScreen screen("r");
  const auto host_column = [&](const std::string& waits) {
    const std::string more = waits.empty() ? "" : R"(,"waiting_for":")" + waits + R"(")";
    REQUIRE(screen.TakeStatus(StatusJson(1, 1, NodeJson("worker 0", more))));
    const std::string text = Text(screen, {24, 200});
    const size_t at = text.find("HOST");
    return at - text.rfind('\n', at);
  };
  const size_t wide = host_column("server 1");
  CHECK(host_column("") == wide);
  CHECK(host_column(std::string(10'000, 'x')) < 200);
}

TEST_CASE("a terminal that is too small says what it needs") {
  TopScreen screen("r");
  REQUIRE(screen.TakeStatus(StatusJson(1, 1, NodeJson("worker 0"))));
  CHECK(TopScreen::IsEnough(TopScreen::kSizeMin));
  CHECK(Contains(Text(screen, TopScreen::kSizeMin), "worker 0"));
  CHECK(Contains(Text(screen, TopScreen::kSizeMin), "q quit\n"));
  CHECK(Text(screen, {7, 80}) ==
        "this terminal has 7 lines of 80 columns; top needs 8 of 48\n\n\n\n\n\n\n");
  CHECK(Text(screen, {8, 20}).starts_with("this terminal has 8 \n"));
}

TEST_CASE("a screen of any size has as many lines as rows, and a silence is shown") {
  TopScreen screen("r");
  for (const bool has_status : {false, true}) {
    if (has_status) REQUIRE(screen.TakeStatus(StatusJson(1, 1, NodeJson("worker 0"))));
    for (size_t rows = 0; rows < 12; ++rows) {
      for (const size_t columns : {0, 1, 80}) CHECK(screen.Draw({rows, columns}).size() == rows);
    }
  }
  screen.TakeSilence(1.9, "");
  CHECK(!Contains(Text(screen), "no answer"));
  screen.TakeSilence(12.3, "pando status r says why");
  CHECK(Contains(Text(screen), "no answer for 12 s: pando status r says why\n"));
  CHECK(!screen.TakeStatus("[]"));
  CHECK(screen.chosen() == "worker 0");
}

}  // namespace
}  // namespace pando
