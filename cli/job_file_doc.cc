// docs/job-file.md, made of the table of keys; tests/cli keeps the file equal to this.
#include <fmt/format.h>

#include "cli/job_file.h"

namespace pando {
namespace {

constexpr const char* kIntroduction =
    "# The job file\n"
    "\n"
    "A job is one TOML file. Every key has a default, so an empty file is a job; `pando train "
    "--dry-run`\n"
    "prints the job with every key filled in. A flag of `pando train` overrides the file; `--set "
    "KEY=VALUE`\n"
    "reaches every key (`--set optimizer.beta1=0.8 --set model.hidden=512,256`). Unknown keys are "
    "errors.\n"
    "\n"
    "Everything but `[worker]`, `[snapshot]`, `[verify]` and `[run]` is the job's identity: it "
    "fixes the resulting\n"
    "weights, bit for bit. Those four say only where, how and how safely to compute them, but for "
    "`run.device` and\n"
    "`run.strategy = \"allreduce\"` ([determinism.md](determinism.md)).\n"
    "\n"
    "`train.steps` and `train.epochs` both say how long the run is: give one. A flag or `--set` "
    "silences\n"
    "the other one of the file. So do `eval.every_steps` and `eval.every_epochs` with how often it "
    "is evaluated.\n"
    "\n"
    "`train.activation_checkpointing` has no say in the result either, and a run may be resumed "
    "with another.\n"
    "\n"
    "With `run.strategy = \"allreduce\"` there are no servers: what a file says of them "
    "(`run.servers`,\n"
    "`run.replicas`, `run.lanes`, `run.transport`) does not count, and flags that say it are "
    "errors.\n";

const char* SectionHeading(std::string_view section) {
  if (section == "model") return "the network";
  if (section == "data") return "what it learns from";
  if (section == "train") return "steps and batches";
  if (section == "fp16") return "how the loss is scaled where train.precision is fp16";
  if (section == "optimizer") return "how a gradient becomes an update";
  if (section == "schedule") return "the learning rate over the run";
  if (section == "eval") return "test accuracy during the run";
  if (section == "worker") return "memory against traffic";
  if (section == "snapshot") return "what a lost server or a power cut costs";
  if (section == "verify") return "machines that compute wrongly";
  return "where and how";
}

std::string Code(const std::string& text) { return text.empty() ? "" : "`" + text + "`"; }

std::string Row(const JobKey& key) {
  std::string help = key.help;
  if (key.kind != ValueKind::kText) help += fmt::format(" ({})", ExpectedValue(key));
  const std::string alias = key.flag_alias.empty() ? "" : ", " + Code(key.flag_alias);
  return fmt::format("| {} | {}{} | {} | {} | {} |\n", Code(key.name), Code(key.flag), alias,
                     key.unit, Code(JobValueToml(key.get(Job{}))), help);
}

}  // namespace

std::string JobFileDoc() {
  std::string text = kIntroduction;
  std::string_view section;
  for (const JobKey& key : JobKeys()) {
    if (key.section() != section) {
      section = key.section();
      text += fmt::format("\n## [{}]: {}\n\n", section, SectionHeading(section));
      text += "| key | flag | unit | default | meaning |\n|---|---|---|---|---|\n";
    }
    text += Row(key);
  }
  return text;
}

}  // namespace pando
