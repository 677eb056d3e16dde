#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cli/commands.h"
#include "common/endpoint.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "common/text.h"
#include "job/job_file.h"
#include "job/run_plan.h"
#include "run/run_folder.h"
#include "worker/allreduce/allreduce_group.h"

namespace pando {
namespace {

std::string GroupName(std::string_view section) {
  if (section == "model" || section == "data") return "Model and data";
  if (section == "optimizer" || section == "schedule" || section == "fp16")
    return "Optimizer and schedule";
  const bool is_run = section == "run" || section == "snapshot" || section == "verify";
  return is_run ? "Processes and run folder" : "Steps and batches";
}

// Indexed by ValueKind.
constexpr auto kTypeNames =
    std::to_array({"N", "X", "true|false", "NAME", "NAME", "N,N", "NAME,NAME"});

std::string TypeName(const JobKey& key) {
  if (key.name == "run.timeline_steps") return "A:B";
  const bool is_path = key.unit == "folder" || key.unit == "file";
  if (key.kind == ValueKind::kText && is_path) return "PATH";
  return kTypeNames[static_cast<size_t>(key.kind)];
}

// Returns the default as the flag takes it. If it is empty, the help says what that value means.
std::string DefaultText(const JobKey& key) {
  static const Job kDefaults;
  const JobValue value = key.get(kDefaults);
  if (auto* text = std::get_if<std::string>(&value)) return *text;
  if (auto* counts = std::get_if<std::vector<uint64_t>>(&value)) return Joined(*counts);
  if (auto* texts = std::get_if<std::vector<std::string>>(&value)) return Joined(*texts);
  return JobValueToml(value);
}

std::string Help(const JobKey& key) {
  std::string help = key.help;
  if (key.kind == ValueKind::kChoice) help += ": " + Joined(key.choices);
  if (!key.file_suffix.empty()) help += ", or FILE" + key.file_suffix;
  const std::string usual = DefaultText(key);
  return usual.empty() ? help : fmt::format("{} [{}]", help, usual);
}

// Parses "a.b=c" as an override; a --set without '=' names no key.
JobDraft::Override ParseSet(const std::string& text) {
  const size_t equals = std::min(text.find('='), text.size());
  return {.key = text.substr(0, equals),
          .text = equals == text.size() ? "" : text.substr(equals + 1),
          .where = "--set " + text};
}

// Adds a flag for each key for which `is_wanted` holds.
void AddKeyFlags(CLI::App& command, JobSource* source, bool (*is_wanted)(const JobKey&)) {
  for (const JobKey& key : JobKeys()) {
    if (key.flag.empty() || !is_wanted(key)) continue;
    const bool is_switch = key.kind == ValueKind::kBool;  // its name alone means true
    auto add = [source, &key, is_switch](const std::string& text) {
      source->overrides.push_back(
          {.key = key.name, .text = is_switch && text.empty() ? "true" : text, .where = key.flag});
    };
    const std::string names = key.flag + (key.flag_alias.empty() ? "" : "," + key.flag_alias);
    command.add_option_function<std::string>(names, add, Help(key))
        ->type_name(TypeName(key))
        ->expected(is_switch ? 0 : 1, 1)
        ->group(GroupName(key.section()));
  }
}

void AddSetOption(CLI::App& command, JobSource* source) {
  auto add_set = [source](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) source->overrides.push_back(ParseSet(text));
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--set", add_set, "any key of the job file (docs/job-file.md); repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->group("Steps and batches");
}

// Returns whether a resumed run may change the key. Its folder is an argument, and has the job.
bool IsForResume(const JobKey& key) {
  if (key.name == "data.path" || key.name == "train.activation_checkpointing") return true;
  if (IsLengthKey(key)) return true;
  if (key.name == "run.dir" || key.name == "run.name") return false;
  return key.section() == "run" || key.section() == "snapshot" || key.section() == "verify";
}

// Returns whether the key is for a run of a program, which itself says what is trained.
bool IsForProgram(const JobKey& key) {
  const bool is_fixed = key.name == "run.strategy" || key.name == "run.allreduce" ||
                        key.name == "run.device" || key.name == "run.threads";
  const std::string_view section = key.section();
  return !is_fixed && (section == "run" || section == "snapshot" || section == "verify");
}

bool IsLoopback(const std::string& endpoint) {
  const Result<Endpoint> parsed = ParseEndpoint(SplitEndpoints(endpoint).front());
  return parsed.ok() && (parsed->kind == Endpoint::Kind::kIpc || IsLoopbackAddress(parsed->host) ||
                         parsed->host == "localhost");
}

}  // namespace

bool IsLengthKey(const JobKey& key) {
  return key.name == "train.steps" || key.name == "train.epochs";
}

void AddJobOptions(CLI::App& command, JobSource* source) {
  AddOption(command, "JOB JOB.toml", &source->job_path,
            "the job file; without it, defaults and flags make the job");
  AddKeyFlags(command, source, [](const JobKey&) { return true; });
  AddSetOption(command, source);
}

void AddCostOptions(CLI::App& command, JobSource* source) {
  AddKeyFlags(command, source, [](const JobKey& key) {
    return key.name == "optimizer.type" || key.name == "optimizer.momentum" ||
           key.name == "train.precision" || key.name == "run.device";
  });
  AddSetOption(command, source);
}

void AddResumeOptions(CLI::App& command, JobSource* source) {
  AddKeyFlags(command, source, IsForResume);
  AddSetOption(command, source);
}

void AddProgramOptions(CLI::App& command, JobSource* source) {
  AddKeyFlags(command, source, IsForProgram);
  AddSetOption(command, source);
}

void AddModelOptions(CLI::App& command, JobSource* source) {
  AddKeyFlags(command, source, [](const JobKey& key) {
    const bool is_of_model = key.section() == "model" || key.section() == "data";
    const bool is_of_training = key.name == "data.limit" || key.name.starts_with("model.init");
    return is_of_model && !is_of_training;
  });
}

Status RefuseProgramKeys(const JobSource& source,
                         const std::function<bool(const JobKey&)>& is_its) {
  for (const JobDraft::Override& override : source.overrides) {
    const JobKey* key = FindJobKey(override.key);
    if (key == nullptr || !is_its(*key)) continue;
    return InvalidArgument(fmt::format("{}: {} is the program's to say; give it to the program",
                                       override.where, override.key));
  }
  return Status();
}

Result<Job> ResolveJob(const JobSource& source) {
  JobDraft draft;
  if (!source.job_path.empty()) {
    PANDO_ASSIGN_OR_RETURN(std::string text, ReadTextFile(source.job_path));
    PANDO_RETURN_IF_ERROR(draft.AddToml(text, source.job_path));
  }
  PANDO_RETURN_IF_ERROR(draft.AddOverrides(source.overrides));
  const std::string notice = ChooseData(&draft);
  if (!notice.empty()) Say("pando: {}\n", notice);
  PANDO_ASSIGN_OR_RETURN(Job job, draft.Finish());
  PANDO_RETURN_IF_ERROR(LoadNetwork(&job));
  ResolveRunNames(std::chrono::system_clock::now(), &job);
  return job;
}

Result<std::optional<InitialWeights>> FindInitialWeights(const OpenedJob& opened, Job* job) {
  if (job->init.empty() && !job->init_hash.empty()) {
    return InvalidArgument(
        "model.init_hash names weights, and model.init no file; give the file, or leave both out");
  }
  if (job->init.empty() && job->init_partial) {
    return InvalidArgument(
        "model.init_partial (--init-partial) takes what fits of a file: give one with --init");
  }
  if (job->init.empty()) return std::optional<InitialWeights>();
  PANDO_ASSIGN_OR_RETURN(InitialWeights weights, LoadInitialWeights(*job, opened.plan.layout));
  if (!job->init_hash.empty() && job->init_hash != weights.hash) {
    return InvalidArgument(
        fmt::format("{} gives weights with the hash {}, and model.init_hash is {}; give the file "
                    "of that hash, or leave model.init_hash out",
                    job->init, weights.hash, job->init_hash));
  }
  job->init_hash = weights.hash;
  Say("pando: starting from the weights in {}\n", job->init);
  if (!weights.drawn.empty()) Say("pando: drawn from the seed: {}\n", Joined(weights.drawn));
  if (!weights.unused.empty()) Say("pando: not used of the file: {}\n", Joined(weights.unused));
  return std::optional(std::move(weights));
}

void AddVerboseOption(CLI::App& command, bool* is_verbose) {
  AddFlag(command, "-v,--verbose", is_verbose, "more lines in the logs");
}

void AddPreloadOption(CLI::App& command, JobSource* source) {
  command.add_flag_callback(
      "--preload",
      [source] {
        source->overrides.push_back({.key = "run.preload", .text = "true", .where = "--preload"});
      },
      kPreloadHelp);
}

void AddJoinOption(CLI::App& command, std::string* endpoint) {
  AddOption(command, "--join ENDPOINT", endpoint,
            "where the scheduler listens: tcp://HOST:PORT or ipc://PATH; with standbys, all "
            "schedulers' endpoints with commas between them")
      .Required();
}

Result<RunFolder> FolderChoice::Create(const Job& job) const {
  using Access = RunFolder::Access;
  return RunFolder::Create(job, is_forced, is_shared ? Access::kByUmask : Access::kOwner);
}

void AddFolderOptions(CLI::App& command, FolderChoice* choice) {
  AddFlag(command, "--force", &choice->is_forced, "overwrite the run that the run folder holds");
  AddFlag(command, "--shared-run-dir", &choice->is_shared,
          "let other users read the run folder, as far as the umask does");
}

void AddRunAddress(CLI::App& command, RunAddress* address) {
  AddOption(command, "RUN_DIR", &address->run_dir, "the run's folder, or --join");
  AddOption(command, "--join ENDPOINT", &address->join,
            "where the scheduler listens, if the folder is not here");
  AddKeysOption(command, &address->keys);
}

void AddKeysOption(CLI::App& command, std::string* folder) {
  AddOption(command, "--keys FOLDER", folder,
            "the run's keys (pando keys new); without the flag PANDO_KEYS names the folder");
}

void AddOwnKeysOption(CLI::App& command, std::string* folder) {
  AddOption(command, "--keys FOLDER", folder,
            "keys that pando keys new made, instead of those that the run makes for itself")
      .Group("Processes and run folder");
}

Result<Keys> FindRunKeys(const RunAddress& run, KeyRole purpose) {
  std::string folder = run.keys;
  const std::string kept = RunFolder::Open(run.run_dir).KeysPath();
  // In a shared run folder, other users see only what its files grant.
  const bool is_ours = !run.run_dir.empty() && access(kept.c_str(), R_OK | X_OK) == 0;
  if (folder.empty() && is_ours) folder = kept;
  return FindKeys(folder, purpose);
}

Result<std::string> FindEndpoint(const RunAddress& address) {
  if (address.run_dir.empty() == address.join.empty())
    return InvalidArgument("give the run's folder, or --join ENDPOINT, and not both");
  if (!address.join.empty()) {
    PANDO_RETURN_IF_ERROR(CheckEndpoints("--join", address.join));
    return address.join;
  }
  const RunFolder folder = RunFolder::Open(address.run_dir);
  const Result<Summary> ended = folder.ReadSummary();
  if (ended.ok()) {
    return Unavailable(fmt::format("the run in {} has ended: {} after {} steps; {} says more",
                                   folder.path(), ended->status, ended->steps,
                                   folder.SummaryPath()));
  }
  Result<std::string> endpoint = folder.ReadEndpoint();
  if (endpoint.ok()) return endpoint;
  if (HasSeat(address.run_dir)) {
    return NotFound(fmt::format(
        "{} is the folder of a standby scheduler: give --join with the endpoints of the "
        "run's schedulers, or the folder of the one that leads",
        address.run_dir));
  }
  return NotFound(
      fmt::format("{} holds no run that a scheduler has led ({}); pando train and "
                  "pando scheduler print their run's folder",
                  address.run_dir, endpoint.status().message()));
}

void AddBindOptions(CLI::App& command, const std::string& what, std::string* bind, bool* insecure) {
  AddOption(command, "--bind ENDPOINT", bind,
            fmt::format("where {} [{}]", what,
                        bind->empty() ? "this machine's address on the way to --join" : *bind));
  AddFlag(command, "--insecure", insecure, "allow --bind beyond this machine without keys");
}

void AddStartTimeoutOption(CLI::App& command, uint32_t* start_timeout_ms) {
  auto set = [start_timeout_ms](const double& seconds) {
    *start_timeout_ms = static_cast<uint32_t>(seconds * 1000);
  };
  command
      .add_option_function<double>(
          "--start-timeout", set,
          fmt::format("seconds to wait for the scheduler [{:g}]", *start_timeout_ms / 1000.0))
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, 86400.0));
}

void AddMaxRestartsOption(CLI::App& command, uint32_t* restarts_max) {
  AddOption(command, "--max-restarts N", restarts_max,
            fmt::format("restarts of a process that dies within one minute of its start [{}]",
                        *restarts_max))
      .Group("Processes and run folder");
}

void AddMovedDataOption(CLI::App& command, std::string* data_path) {
  AddOption(command, "--data PATH", data_path, "where the data lie now, if they have moved");
}

Status CheckEndpoint(const std::string& flag, const std::string& endpoint) {
  const Status parsed = ParseEndpoint(endpoint).status();
  return parsed.ok() ? parsed : InvalidArgument(flag + ": " + parsed.message());
}

Status CheckEndpoints(const std::string& flag, const std::string& endpoints) {
  for (const std::string& endpoint : SplitEndpoints(endpoints))
    PANDO_RETURN_IF_ERROR(CheckEndpoint(flag, endpoint));
  return Status();
}

namespace {

// The flags that an endpoint needs if other machines reach it.
constexpr const char* kExposedHint =
    "give --keys FOLDER (pando keys new makes one), or --insecure if the network is private";

// Returns whether --insecure allows the endpoint; if so, prints a warning.
bool IsAllowed(bool is_insecure, const std::string& endpoint) {
  if (is_insecure)
    Say("pando: --insecure: any program that reaches {} can join, read and disturb the run\n",
        endpoint);
  return is_insecure;
}

}  // namespace

ServiceManager TakeServiceManager() {
  const auto take = [](const char* name) {
    const char* value = std::getenv(name);
    std::string text = value == nullptr ? "" : value;
    unsetenv(name);
    return text;
  };
  ServiceManager manager{.socket = take("NOTIFY_SOCKET")};
  const std::string watched = take("WATCHDOG_PID");
  const uint64_t timeout = ParseNumber<uint64_t>(take("WATCHDOG_USEC")).value_or(0);
  const bool is_watched = watched.empty() || watched == std::to_string(getpid());
  if (is_watched && timeout <= static_cast<uint64_t>(Micros::max().count()))
    manager.watchdog_timeout = Micros(timeout);
  return manager;
}

Status CheckBind(const std::string& endpoint, bool is_insecure, const Keys& keys) {
  PANDO_RETURN_IF_ERROR(CheckEndpoint("--bind", endpoint));
  if (!keys.are_none() || IsLoopback(endpoint)) return Status();
  if (IsAllowed(is_insecure, endpoint)) return Status();
  return InvalidArgument(
      fmt::format("--bind {} can be reached from other machines, and any program that reaches it "
                  "can join or disturb the run; {}, or bind tcp://127.0.0.1:PORT",
                  endpoint, kExposedHint));
}

Status CheckServing(const std::string& join, const std::string& bind, bool is_insecure,
                    const Keys& keys) {
  const bool is_elsewhere = !IsLoopback(join);
  if (bind.empty()) {
    if (!keys.are_none() || !is_elsewhere) return Status();
    if (IsAllowed(is_insecure, "this machine's servers")) return Status();
    return InvalidArgument(
        fmt::format("--join {} is reached over the network, so servers listen there too, and any "
                    "program that reaches them can disturb the run; {}",
                    join, kExposedHint));
  }
  PANDO_RETURN_IF_ERROR(CheckBind(bind, is_insecure, keys));
  if (!is_elsewhere || !IsLoopback(bind)) return Status();
  return InvalidArgument(fmt::format(
      "--bind {} cannot be reached by the run's processes on other machines, and --join "
      "{} is one for them; leave --bind out, or give --bind tcp://ADDRESS:0 with this "
      "machine's address",
      bind, join));
}

void PrintSummary(const Summary& summary, const RunFolder& folder) {
  std::string line = fmt::format("pando: {} after {} steps", summary.status, summary.steps);
  if (!summary.test_sums.empty()) {
    line += ", " + summary.test_sums;
  } else if (summary.test_accuracy) {
    line +=
        fmt::format(", {} accuracy {:.2f} %", summary.evaluated_on, 100 * *summary.test_accuracy);
  }
  if (summary.images_per_second > 0)
    line += fmt::format(", {:.0f} images/s", summary.images_per_second);
  if (summary.unverified_micro_batches > 0)
    line += fmt::format(", {} micro-batches not verified", summary.unverified_micro_batches);
  if (!summary.is_reproducible)
    line +=
        ", bits that need not come again (several kinds of workers, allow_nondeterministic, or "
        "codec 1-bit or top-k)";
  if (!summary.failure.empty()) line += ": " + summary.failure;
  Say("{}\npando: summary in {}\n", line, folder.SummaryPath());
  std::error_code ignored;  // an unreadable journal shows when it is read
  if (summary.status == kStatusCompleted || !std::filesystem::exists(folder.JournalPath(), ignored))
    return;
  if (HasDiverged(summary)) {
    Say("pando: a resumed run would diverge again; start another one with other settings, "
        "from a snapshot: pando export {} FILE --step N, pando train --init FILE\n",
        folder.path());
    return;
  }
  Say("pando: continue with: pando resume {} (from step {})\n", folder.path(),
      summary.snapshots.empty() ? 0 : summary.snapshots.back().version.value());
}

int Report(const Status& status) {
  Say("pando: {}\n", status.message());
  return ExitCodeFor(status);
}

}  // namespace pando
