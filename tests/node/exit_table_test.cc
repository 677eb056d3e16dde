#include "node/fleet/exit_table.h"

#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <string>

#include "common/exit_codes.h"
#include "node/supervisor.h"

namespace pando {
namespace {

// What follows in each phase of the run, as the table's letters.
std::string Letters(ExitRole role, const ProcessExit& exit) {
  std::string letters;
  for (const FleetPhase phase : {FleetPhase::kGathering, FleetPhase::kBegun, FleetPhase::kLeft})
    letters += static_cast<char>(Follow(role, exit.kind(), phase));
  return letters;
}

ProcessExit Code(int code) { return {.exit_code = code}; }
ProcessExit Signal(int signal) { return {.signal = signal}; }

struct Row {
  ExitRole role;
  const char* kill;         // SIGKILL
  const char* segv;         // any other signal
  const char* failed;       // kExitFailed
  const char* unreached;    // kExitUnreached
  const char* member_lost;  // kExitMemberLost
};
constexpr auto kRows = std::to_array<Row>({
    {ExitRole::kNewScheduler, "EEE", "EEE", "EEE", "EEE", "GGG"},
    {ExitRole::kScheduler, "RRR", "ERR", "EEE", "EEE", "GGG"},
    {ExitRole::kMember, "RRR", "ERR", "ERR", "ERR", "EEE"},
    {ExitRole::kScript, "RRR", "ERR", "ERR", "EEE", "EEE"},
    {ExitRole::kGroupMember, "EGG", "EGG", "EEE", "EGG", "EEE"},
    {ExitRole::kNodeMember, "RRR", "RRR", "RRR", "ERI", "EEE"},
    {ExitRole::kNodeScript, "RRR", "RRR", "RRR", "EEE", "EEE"},
});

TEST_CASE("each role's ends by a signal or a code of Pando's restart, end or leave the run") {
  for (const Row& row : kRows) {
    CAPTURE(static_cast<int>(row.role));
    CHECK(Letters(row.role, Signal(SIGKILL)) == row.kill);
    for (const int signal : {SIGSEGV, SIGABRT, SIGTERM, SIGBUS})
      CHECK(Letters(row.role, Signal(signal)) == row.segv);
    CHECK(Letters(row.role, Code(kExitFailed)) == row.failed);
    CHECK(Letters(row.role, Code(kExitUnreached)) == row.unreached);
    CHECK(Letters(row.role, Code(kExitMemberLost)) == row.member_lost);
  }
}

TEST_CASE("every other exit code is a decision, which a restart would only repeat") {
  for (const Row& row : kRows) {
    for (const int code :
         {kExitUsage, kExitFenced, kExitOutOfMemory, 7, 127, kExitInterrupted, 255})
      CHECK(Letters(row.role, Code(code)) == "EEE");
  }
}

TEST_CASE("a process that has left is ignored, and a killed one restarts, unless its group does") {
  ProcessExit late = Code(kExitFailed);  // of a script, after its loop
  late.stop = Stop{StopReason::kCompleted, ""};
  ProcessExit injected = Signal(SIGKILL);
  injected.is_injected = true;
  for (const Row& row : kRows) {
    CHECK(Letters(row.role, Code(kExitCompleted)) == "III");
    CHECK(Letters(row.role, late) == "III");
    CHECK(Letters(row.role, injected) == (row.role == ExitRole::kGroupMember ? "EGG" : "RRR"));
  }
}

}  // namespace
}  // namespace pando
