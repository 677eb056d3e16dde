#include "node/programs/declaration.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "common/clock.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "common/system.h"
#include "job/job_file.h"
#include "net/address.h"
#include "net/event_loop.h"
#include "net/zmq/zmq_context.h"
#include "node/log.h"
#include "plan/external_model.h"
#include "run/initial_weights.h"
#include "run/run_folder.h"
#include "run/safetensors_file.h"
#include "scheduler/declaration_intake.h"

namespace pando {
namespace {

constexpr Micros kNoteInterval = std::chrono::seconds(3);

// Merges the program's declaration with the settings of the run's command line.
Result<Job> MergedJob(const std::string& declared_toml, const Job& run) {
  PANDO_ASSIGN_OR_RETURN(Job job, ParseJobText(declared_toml, "the program's declaration"));
  for (const JobKey& key : JobKeys()) {
    if (!IsIdentityKey(key) && key.section() != "train" && key.section() != "model")
      key.set(job, key.get(run));
  }
  if (!IsExternal(job) || !IsDeclared(job))
    return InvalidArgument("a program's declaration has model.name = \"external\" and tensors");
  return ParseJobText(WriteJobText(job), "the program's declaration");
}

Result<uint64_t> BytesOfVersionZero(const std::string& declared_toml, const Job& run) {
  PANDO_ASSIGN_OR_RETURN(const Job job, MergedJob(declared_toml, run));
  PANDO_ASSIGN_OR_RETURN(const JobPlan plan, ExternalPlan(job));
  return plan.layout.float_count() * sizeof(float);
}

Status Keep(DeclarationIntake& intake, const SchedulerArgs& args, Job* job) {
  PANDO_ASSIGN_OR_RETURN(*job, MergedJob(intake.job_toml(), args.job));
  PANDO_ASSIGN_OR_RETURN(const JobPlan plan, ExternalPlan(*job));
  const std::vector<std::byte> bytes = intake.TakeBytes();
  InitialWeights weights{.flat = FloatBuffer(plan.layout.float_count())};
  std::memcpy(weights.flat.data(), bytes.data(), bytes.size());
  job->init_hash = WeightsHash(plan.layout, std::as_const(weights.flat).span());
  job->servers_max = JobPlan::ServersMax(*job);  // the run keeps it
  PANDO_RETURN_IF_ERROR(KeepInitialWeights(weights, RunFolder::Open(args.run_dir), plan));
  return WriteFileAtomically(RunFolder::Open(args.run_dir).JobPath(), WriteJobText(*job),
                             FileAccess::kAsFolder);
}

}  // namespace

Result<std::string> TellEndpoint(const SchedulerArgs& args, const std::string& endpoint) {
  const Result<std::string> advertised =
      AdvertisedEndpoint(endpoint, Endpoint{.host = "127.0.0.1"});
  const std::string& reached = advertised.ok() ? *advertised : endpoint;
  if (Status s = RunFolder::Open(args.run_dir).WriteEndpoint(reached); !s.ok())
    Say("pando: {}\n", s.message());  // the commands take --join
  if (args.endpoint_file.empty()) {
    const char* how =
        IsExternal(args.job) ? "pando node --join {}{} -- PROGRAM" : "pando server --join {}{}";
    const std::string flag = !args.keys.are_none() ? " --keys " + args.keys.folder
                             : args.insecure       ? " --insecure"
                                                   : "";
    Say("pando: listening on {}; join with: {}\n", endpoint,
        fmt::format(fmt::runtime(how), reached, flag));
    return reached;
  }
  std::ofstream file(args.endpoint_file);
  file << endpoint << '\n' << std::flush;
  if (file) return reached;
  return Unavailable(fmt::format(
      "cannot write the endpoint to {}; is its folder there and writable?", args.endpoint_file));
}

Result<SchedulerArgs> AwaitDeclaration(const SchedulerArgs& args, ShutdownSignal& shutdown,
                                       ServiceNotice& service) {
  ZmqContext context(args.keys, LogWarning);
  const PeerId self{kSchedulerNode, NewIncarnation(), 0};
  Transport transport(context, self, {.insecure = args.insecure, .on_warning = LogWarning});
  Result<std::string> endpoint = transport.Bind(args.bind);
  if (!endpoint.ok()) return BadBind(endpoint.status());
  PANDO_RETURN_IF_ERROR(TellEndpoint(args, *endpoint).status());
  service.SendReady("waiting for a program's model at " + *endpoint);
  DeclarationIntake intake(
      self, [&](const std::string& toml) { return BytesOfVersionZero(toml, args.job); }, transport);
  const Micros start = SteadyNow();
  const Micros patience = std::chrono::milliseconds(args.job.start_timeout_ms);
  Micros note_at = start + kNoteInterval;
  const auto watch = [&](Micros now) {
    shutdown.Take();
    if (now < note_at) return;
    note_at += kNoteInterval;
    Say("pando: waiting since {} s for a worker whose program declares the model\n",
        (now - start) / std::chrono::seconds(1));
  };
  const auto is_over = [&] {
    return intake.is_whole() || !intake.stop_text().empty() || shutdown.first_signal() != 0 ||
           SteadyNow() - std::max(start, intake.heard_at()) >= patience;
  };
  RunLoop(intake, transport,
          {.local = {{shutdown.fd(), watch, kNoteInterval},
                     {-1, [&](Micros now) { service.Feed(now); }, service.feed_interval()}},
           .is_finished = is_over});
  if (!intake.stop_text().empty()) return Interrupted(intake.stop_text());
  if (shutdown.first_signal() != 0) return Interrupted("interrupted");
  if (!intake.is_whole()) {
    return Unavailable(fmt::format(
        "no program has declared the model within {} s: does it call pando_train.join (or "
        "pando_open), and what do the logs of the workers say? run.start_timeout_ms is the limit",
        patience / std::chrono::seconds(1)));
  }
  SchedulerArgs declared = args;
  PANDO_RETURN_IF_ERROR(Keep(intake, args, &declared.job));
  declared.bind = *endpoint;
  return declared;
}

}  // namespace pando
