#include "run/run_recorder.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "common/unique_fd.h"

namespace pando {
namespace {

using namespace std::chrono_literals;

// A pipe whose text is read at the end.
class Sink {
 public:
  Sink() {
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    read_ = UniqueFd(ends[0]);
    write_ = UniqueFd(ends[1]);
  }
  int fd() const { return write_.get(); }
  std::string Text() {
    write_ = UniqueFd();
    { UniqueFd closed(std::move(write_)); }
    std::string text;
    std::array<char, 4096> bytes{};
    for (ssize_t n; (n = read(read_.get(), bytes.data(), bytes.size())) > 0;) {
      text.append(bytes.data(), static_cast<size_t>(n));
    }
    return text;
  }

 private:
  UniqueFd read_;
  UniqueFd write_;
};

ProgressState ProgressAt(uint64_t step) {
  return {.step = step,
          .step_count = 100,
          .epoch = 0.5,
          .loss = 0.25,
          .accuracy = 0.875,
          .images_per_second = 31200};
}

TEST_CASE("the text has step, epoch, loss, accuracy, speed and time left") {
  CHECK(ProgressText(ProgressAt(50), 75s) ==
        "step 50/100 · epoch 0.50 · loss 0.2500 · accuracy 87.5 % · 31,200 images/s · 1:15 left");
  CHECK(ProgressText(ProgressAt(100), 0s) ==
        "step 100/100 · epoch 0.50 · loss 0.2500 · accuracy 87.5 % · 31,200 images/s");
  CHECK(ProgressText(ProgressAt(1), 3725s).ends_with("1:02:05 left"));
  ProgressState waiting = ProgressAt(100);
  waiting.exposed_sync_ms = 2.34;
  CHECK(ProgressText(waiting, 0s).ends_with("31,200 images/s · exposed sync 2.3 ms"));
}

TEST_CASE("off a terminal there is a plain line every few seconds and a last one") {
  Sink sink;
  ProgressLine line(sink.fd(), /*is_terminal=*/false);
  const ProgressLine::TimePoint start{1h};
  line.Update(ProgressAt(0), start);
  line.Update(ProgressAt(10), start + 1s);
  line.Update(ProgressAt(50), start + ProgressLine::kPlainInterval);
  line.Note("evaluated");
  line.Update(ProgressAt(60), start + 6s);
  line.Finish();
  CHECK(sink.Text() == ProgressText(ProgressAt(50), 5s) + "\nevaluated\n" +
                           ProgressText(ProgressAt(60), 4s) + "\n");
}

TEST_CASE("on a terminal the bar is drawn over itself and moves below notes") {
  Sink sink;
  ProgressLine line(sink.fd(), /*is_terminal=*/true);
  const ProgressLine::TimePoint start{1h};
  line.Update(ProgressAt(0), start);
  line.Update(ProgressAt(50), start + 1s);
  line.Note("evaluated");
  line.Finish();
  const std::string text = sink.Text();
  const std::string bar = "\r\033[K━━━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌ " + ProgressText(ProgressAt(50), 1s);
  CHECK(text == bar + "\r\033[Kevaluated\n" + bar + bar + "\n");
}

TEST_CASE("the bar fits its terminal: it shrinks, loses the epoch, itself, and its end") {
  const std::string whole = ProgressText(ProgressAt(50), 75s);
  const std::string brief = ProgressText(ProgressAt(50), 75s, /*has_epoch=*/false);
  CHECK(brief == "step 50/100 · loss 0.2500 · accuracy 87.5 % · 31,200 images/s · 1:15 left");
  // Characters: 86 and 73; a bar has 24 at most and 6 at least, and a space.
  CHECK(ProgressBarText(ProgressAt(50), 75s, 200) == "━━━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌ " + whole);
  CHECK(ProgressBarText(ProgressAt(50), 75s, 93) == "━━━╌╌╌ " + whole);
  CHECK(ProgressBarText(ProgressAt(50), 75s, 80) == "━━━╌╌╌ " + brief);
  CHECK(ProgressBarText(ProgressAt(50), 75s, 79) == brief);
  CHECK(ProgressBarText(ProgressAt(50), 75s, 13) == "step 50/100 ·");
}

TEST_CASE("a run that never moved leaves no line") {
  Sink sink;
  ProgressLine line(sink.fd(), true);
  line.Finish();
  CHECK(sink.Text().empty());
}

}  // namespace
}  // namespace pando
