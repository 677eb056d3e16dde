#include "node/leave_notices.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "common/system.h"

namespace pando {
namespace {

// This process's environment has the notices' variable.
struct Listener {
  Listener() {
    const std::string& variable = notices.variable();
    const size_t equals = variable.find('=');
    name = variable.substr(0, equals);
    setenv(name.c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  ~Listener() { unsetenv(name.c_str()); }
  LeaveNotices notices;
  std::string name;
};

TEST_CASE("a process tells its supervisor how the run has ended for it, the last word counts") {
  Listener listener;
  listener.notices.Take();
  CHECK_FALSE(listener.notices.Find(ProcessKey()).has_value());
  SendLeaveNotice({StopReason::kDrained, ""});
  SendLeaveNotice({StopReason::kFailed, "loss is not a number"});
  listener.notices.Take();
  const std::optional<Stop> stop = listener.notices.Find(ProcessKey());
  REQUIRE(stop.has_value());
  CHECK(stop->reason == StopReason::kFailed);
  CHECK(stop->text == "loss is not a number");
  CHECK_FALSE(listener.notices.Find(ProcessKey() + 1).has_value());
}

TEST_CASE("a notice of any length arrives, shortened") {
  Listener listener;
  SendLeaveNotice({StopReason::kCompleted, std::string(100'000, 'x')});
  listener.notices.Take();
  const std::optional<Stop> stop = listener.notices.Find(ProcessKey());
  REQUIRE(stop.has_value());
  CHECK(stop->text.size() == 4096);
}

TEST_CASE("a process without a supervisor, or whose supervisor is gone, sends no notice") {
  SendLeaveNotice({StopReason::kCompleted, ""});
  std::string gone;
  {
    Listener listener;
    gone = listener.notices.variable();
  }
  const size_t equals = gone.find('=');
  setenv(gone.substr(0, equals).c_str(), gone.substr(equals + 1).c_str(), 1);
  SendLeaveNotice({StopReason::kCompleted, ""});
  unsetenv(gone.substr(0, equals).c_str());
}

}  // namespace
}  // namespace pando
