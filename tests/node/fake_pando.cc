// Plays scheduler, server and worker for local_run_test, badly if PANDO_FAKE is set.
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/exit_codes.h"
#include "node/shutdown_signal.h"
#include "run/run_folder.h"

namespace pando {
namespace {

void AwaitSignal(ShutdownSignal& shutdown) {
  pollfd polled{shutdown.fd(), POLLIN, 0};
  while (shutdown.Take() == 0) poll(&polled, 1, -1);
}

std::string After(const std::vector<std::string>& args, std::string_view flag) {
  for (size_t i = 0; i + 1 < args.size(); ++i) {
    if (args[i] == flag) return args[i + 1];
  }
  return "";
}

int Schedule(const std::string& fake, const std::vector<std::string>& args) {
  ShutdownSignal shutdown;
  if (fake == "scheduler fails") return kExitUnreached;
  if (fake == "another scheduler leads") return kExitFenced;
  if (fake == "scheduler is silent") AwaitSignal(shutdown);
  FILE* file = std::fopen(After(args, "--endpoint-file").c_str(), "w");
  if (file == nullptr) return kExitUsage;
  std::fputs("tcp://127.0.0.1:1\n", file);
  std::fclose(file);
  if (fake == "all is well") {
    Summary summary;
    summary.status = kStatusCompleted;
    return RunFolder::Open(After(args, "--prepared-run-dir")).WriteSummary(summary).ok() ? 0 : 1;
  }
  AwaitSignal(shutdown);
  if (fake == "interrupted, scheduler hangs") AwaitSignal(shutdown);
  return kExitInterrupted;
}

int Work(const std::string& fake) {
  ShutdownSignal shutdown;
  if (fake == "all is well") return 0;
  if (fake == "worker dies") {
    std::puts("out of luck");
    std::fflush(stdout);
    raise(SIGKILL);
  }
  if (fake.starts_with("interrupted")) kill(getppid(), SIGINT);
  AwaitSignal(shutdown);
  return 0;
}

int Serve(const std::string& fake) {
  ShutdownSignal shutdown;
  if (fake == "all is well") return 0;
  AwaitSignal(shutdown);
  return 0;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const char* fake = std::getenv("PANDO_FAKE");
  if (args.empty() || fake == nullptr) return pando::kExitUsage;
  if (args[0] == "scheduler") return pando::Schedule(fake, args);
  return args[0] == "worker" ? pando::Work(fake) : pando::Serve(fake);
}
