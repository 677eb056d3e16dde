#include "node/standby/lead_in_turn.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <utility>
#include <variant>

#include "common/exit_codes.h"
#include "job/job_file.h"
#include "node/standby/standby.h"
#include "run/run_folder.h"

namespace pando {
namespace {

// Leads a run that this scheduler may have taken over: the folder has its job.
Result<int> LeadWith(SchedulerArgs args, const Seat& seat, Lead lead, const LeadOnce& lead_once) {
  const RunFolder folder = RunFolder::Open(args.run_dir);
  if (args.is_standby) {
    PANDO_ASSIGN_OR_RETURN(args.job, ReadJobFile(folder.JobPath()));
    args.job.run_dir = args.run_dir;
    SetUpLog({.process = "scheduler",
              .is_verbose = args.is_verbose,
              .file = folder.LogPath("scheduler")});
    spdlog::warn("this scheduler leads the run from now on");
  }
  ZmqContext context(args.keys, LogWarning);
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Leadership> leadership,
                         Leadership::Take(args, seat, std::move(lead), context));
  PANDO_ASSIGN_OR_RETURN(const int code, lead_once(args, *leadership));
  if (code == kExitFenced) return code;
  leadership->AwaitStandbys(std::chrono::seconds(10));  // for the summary
  if (!leadership->keeper().TellEnd(fmt::format("its exit code is {}", code)))
    spdlog::warn("etcd does not answer, so the standbys do not know that the run has ended");
  return code;
}

}  // namespace

Result<int> LeadInTurn(SchedulerArgs args, ShutdownSignal& shutdown, ServiceNotice& service,
                       const LeadOnce& lead_once) {
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Seat> seat,
                         Seat::Open(*args.etcd, args.run_dir, args.is_standby));
  MayBegin may_begin = args.is_standby  ? MayBegin::kNone
                       : args.is_forced ? MayBegin::kAnyRun
                                        : MayBegin::kNewRun;
  while (true) {
    PANDO_ASSIGN_OR_RETURN(auto turn, StandBy(args, *seat, may_begin, shutdown, service));
    if (const auto* end = std::get_if<RunEnded>(&turn)) {
      spdlog::info("the run has ended: {}", end->how);
      return kExitCompleted;
    }
    PANDO_ASSIGN_OR_RETURN(const int code,
                           LeadWith(args, *seat, std::get<Lead>(std::move(turn)), lead_once));
    if (code != kExitFenced) return code;
    spdlog::warn("another scheduler may lead the run; this one stands by");
    args.is_standby = true;
    args.is_resumed = false;
    may_begin = MayBegin::kNone;
  }
}

}  // namespace pando
