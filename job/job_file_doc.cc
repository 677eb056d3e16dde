// Makes docs/job-file.md from the table of keys. tests/job keeps the file equal to this text.
#include <fmt/core.h>

#include "common/text.h"
#include "job/job_file.h"

namespace pando {
namespace {

constexpr const char* kIntroduction =
    R"(# The job file

A job is one TOML file. Every key has a default, so an empty file is a job.
`pando train --dry-run` prints the job with every key filled in. A flag of `pando train` overrides
the file. `--set KEY=VALUE` sets any key (`--set optimizer.beta1=0.8 --set model.hidden=512,256`).
Unknown keys are errors.

All sections except `[worker]`, `[snapshot]`, `[verify]` and `[run]` are the job's identity, which
fixes the resulting weights, bit for bit. The other four say where the weights are computed, with
how many processes, and how often they are stored and checked. They change no weights, with two
exceptions: `run.device`, and `run.strategy = "allreduce"` ([determinism.md](determinism.md)).
`train.activation_checkpointing` changes no weights either, so a resumed run may change it.

`train.steps` and `train.epochs` both set the length of the run: give one. A flag or `--set` for one
overrides the other one in the file. The same holds for `eval.every_steps` and `eval.every_epochs`.

With `run.strategy = "allreduce"` there are no servers. Then `run.servers`, `run.replicas`,
`run.lanes` and `run.transport` in a file are ignored, and their flags are errors.
)";

const char* SectionHeading(std::string_view section) {
  if (section == "model") return "the network";
  if (section == "data") return "the training data";
  if (section == "train") return "steps and batches";
  if (section == "fp16") return "loss scaling with train.precision fp16";
  if (section == "optimizer") return "the update";
  if (section == "schedule") return "the learning rate over the run";
  if (section == "eval") return "evaluations on test or validation samples";
  if (section == "worker") return "memory of a worker";
  if (section == "snapshot") return "what a rollback or a resume starts from";
  if (section == "verify") return "detection of machines that compute wrongly";
  return "where and how";
}

std::string Code(const std::string& text) { return "`" + text + "`"; }

constexpr double kHugeMin = 1e9;

// Returns whether the range excludes a number that a user could want.
bool IsNarrow(const ValueRange& range) {
  return range.min != 0 || range.is_min_excluded || range.max < kHugeMin;
}

// Returns the values that the key takes; "" if its default shows them.
std::string Values(const JobKey& key) {
  if (!key.choices.empty()) return " (" + Joined(key.choices) + ")";
  return IsNarrow(key.range) ? " (" + RangeText(key.range) + ")" : "";
}

std::string Row(const JobKey& key) {
  std::string names = Code(key.name);
  for (const std::string& flag : {key.flag, key.flag_alias}) {
    if (!flag.empty()) names += " " + Code(flag);
  }
  const std::string unit = key.unit.empty() ? "" : " " + key.unit;
  return fmt::format("| {} | {}{} | {}{} |\n", names, Code(JobValueToml(key.get(Job{}))), unit,
                     key.help, Values(key));
}

}  // namespace

std::string JobFileDoc() {
  std::string text = kIntroduction;
  std::string_view section;
  for (const JobKey& key : JobKeys()) {
    if (key.section() != section) {
      section = key.section();
      text += fmt::format("\n## [{}]: {}\n\n", section, SectionHeading(section));
      text += "| key | default | meaning |\n|---|---|---|\n";
    }
    text += Row(key);
  }
  return text;
}

}  // namespace pando
