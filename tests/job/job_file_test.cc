#include "job/job_file.h"
#include "job/job_draft.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <set>

#include "tests/contains.h"
#include "tests/repeated.h"

namespace pando {
namespace {

using Override = JobDraft::Override;

std::string ErrorFor(const std::string& toml) {
  Result<Job> job = ParseJobText(toml, "job.toml");
  REQUIRE_FALSE(job.ok());
  CHECK(job.status().code() == StatusCode::kInvalidArgument);
  return job.status().message();
}

// A value of the key that is not its default, and fits.
JobValue OtherValue(const JobKey& key, const Job& job) {
  const JobValue value = key.get(job);
  if (key.kind == ValueKind::kChoice) return key.choices.back();
  if (key.kind == ValueKind::kBool) return !std::get<bool>(value);
  if (key.kind == ValueKind::kCount) {
    const uint64_t count = std::get<uint64_t>(value);
    return static_cast<double>(count) == key.range.max ? count - 1 : count + 1;
  }
  if (key.kind == ValueKind::kCountList) return std::vector<uint64_t>{7, 3, 1};
  if (key.kind == ValueKind::kTextList) {
    return key.choices.empty() ? std::vector<std::string>{"z", "a \"b\", c"} : key.choices;
  }
  if (key.name == "run.timeline_steps") return std::string("3:7");
  if (key.name == "train.inner") return std::string("type=sgd lr=0.5");
  if (key.kind == ValueKind::kText) return std::string("a \"quoted\"\\path\twith\x01 tab");
  return (std::get<double>(value) + key.range.min + 1.0 / 3.0) / 2;  // not exact in few digits
}

TEST_CASE("an empty job file is the default job") {
  Result<Job> job = ParseJobText("", "job.toml");
  REQUIRE(job.ok());
  CHECK(WriteJobText(*job) == WriteJobText(Job{}));
}

TEST_CASE("a job without servers has one lane, and refuses what only servers do") {
  const auto job_of = [](const std::vector<Override>& overrides, const std::string& toml = "") {
    JobDraft draft;
    REQUIRE(draft.AddToml(toml, "job.toml").ok());
    REQUIRE(draft.AddOverrides(overrides).ok());
    return draft.Finish();
  };
  const Override allreduce{"run.strategy", "allreduce", "--strategy"};
  Result<Job> job =
      job_of({allreduce}, "[run]\nservers = 3\nreplicas = 2\nlanes = 3\ntransport = \"ipc\"\n");
  REQUIRE(job.ok());
  CHECK(job->strategy == Strategy::kAllreduce);
  CHECK(job->servers == 1);
  CHECK(job->replicas == 1);
  CHECK(job->lanes == 1);
  CHECK(job->transport == "auto");
  CHECK(job_of({allreduce, {"run.transport", "auto", "--transport"}}).ok());
  CHECK(JobIdentityText(*job) == JobIdentityText(Job{}));
  Result<Job> read_back = ParseJobText(WriteJobText(*job), "job.toml");
  REQUIRE(read_back.ok());
  CHECK(WriteJobText(*read_back) == WriteJobText(*job));
  for (const Override& other : {Override{"run.servers", "2", "--servers"},
                                Override{"run.servers", "1", "--set run.servers=1"},
                                Override{"run.replicas", "2", "--replicas"},
                                Override{"run.lanes", "1", "--set run.lanes=1"},
                                Override{"run.transport", "shm", "--transport"},
                                Override{"verify.every", "3", "--verify-every"},
                                Override{"worker.parameter_residency", "layer", "--set"},
                                Override{"train.codec", "bf16", "--codec"},
                                Override{"train.pull_codec", "int8", "--pull-codec"}}) {
    CAPTURE(other.key);
    job = job_of({allreduce, other});
    REQUIRE_FALSE(job.ok());
    CHECK(job.status().code() == StatusCode::kInvalidArgument);
    CHECK(Contains(job.status().message(), other.key));
    CHECK(Contains(job.status().message(), other.where));
    CHECK(Contains(job.status().message(), "run.strategy"));
  }
}

TEST_CASE("a list of words is read as people write it, and a wrong word is named") {
  const JobKey& key = *FindJobKey("data.augment");
  using Words = std::vector<std::string>;
  for (const char* text : {"crop,flip", "[\"crop\", \"flip\"]", "crop, flip"}) {
    Result<JobValue> value = ParseJobValue(key, text);
    REQUIRE(value.ok());
    CHECK(std::get<Words>(*value) == Words{"crop", "flip"});
  }
  CHECK(std::get<Words>(*ParseJobValue(key, "")).empty());
  const Status status = ParseJobText("[data]\naugment = [\"flop\"]\n", "job.toml").status();
  CHECK(Contains(status.message(), "job.toml:2"));
  CHECK(Contains(status.message(), "each one of crop, flip"));
  CHECK(Contains(status.message(), "did you mean"));
}

TEST_CASE("eps is torch's for each optimizer, unless it is given") {
  const auto eps_with = [](const std::string& keys) {
    return ParseJobText("[optimizer]\ntype = " + keys, "job.toml")->optimizer.eps;
  };
  CHECK(eps_with("\"adam\"\n") == 1e-8);
  CHECK(eps_with("\"adagrad\"\n") == 1e-10);
  CHECK(eps_with("\"adadelta\"\n") == 1e-6);
  CHECK(eps_with("\"adadelta\"\neps = 1e-8\n") == 1e-8);
}

TEST_CASE("what nadam and a table of rates cannot have is refused by name") {
  const std::string nadam = "[optimizer]\ntype = \"nadam\"\n", schedule = "[schedule]\n";
  const std::string table = schedule + "type = \"table\"\n";
  CHECK(Contains(ErrorFor(nadam + "beta1 = 0.99999\n"), "optimizer.beta1 = 0.99999 (job.toml:3)"));
  CHECK(Contains(ErrorFor(nadam + "[train]\nprecision = \"fp16\"\n"), "its momentum counts all"));
  CHECK(Contains(ErrorFor("[optimizer]\ndecoupled_weight_decay = true\n"), "give adamw"));
  CHECK(Contains(ErrorFor(table), "needs schedule.rates"));
  CHECK(Contains(ErrorFor(schedule + "rates = [\"0.1\"]\n"), "read by table alone"));
  CHECK(Contains(ErrorFor(table + "warmup_steps = 3\nrates = [\"0.1\"]\n"), "leave it out"));
  CHECK(Contains(ErrorFor(table + "rates = [\"0.1\", \"0.1x5\"]\n"), "[1] is '0.1x5'"));
  CHECK(Contains(ErrorFor(table + "rates = [0.1]\n"), "a list of texts"));
}

TEST_CASE("local steps that a job cannot make are refused") {
  const std::string train = "[train]\nglobal_batch = 64\nmicro_batches = 4\n";
  CHECK(ParseJobText(train + "local_steps = 16\n", "job.toml").ok());
  CHECK(Contains(ErrorFor(train + "local_steps = 17\n"), "train.local_steps"));
  CHECK(Contains(ErrorFor(train + "local_steps = 0\n"), "local_steps"));
  CHECK(Contains(ErrorFor(train + "staleness = 2\n"), "staleness"));
  CHECK(Contains(ErrorFor(train + "staleness = 1\nprecision = \"fp16\"\n"), "train.precision"));
  CHECK(Contains(ErrorFor(train + "staleness = 1\ncodec = \"top-k\"\n"), "train.codec"));
  CHECK(Contains(ErrorFor(train + "local_steps = 2\nprecision = \"bf16\"\n"), "train.precision"));
  CHECK(Contains(ErrorFor(train + "inner = \"type=lars\"\n"), "train.inner is 'type=lars'"));
  CHECK(Contains(ErrorFor(train + "inner = \"end_factor=2\"\n"), "from 0 to 1"));
}

TEST_CASE("every key survives writing and reading") {
  for (const JobKey& key : JobKeys()) {
    Job job;
    const JobValue value = OtherValue(key, job);
    CAPTURE(key.name);
    REQUIRE(CheckJobValue(key, value).ok());
    key.set(job, value);
    CHECK(key.get(job) == value);
    // Keys that need company.
    const std::set<std::string> of_program{"model.tensors",    "model.constants", "eval.sums",
                                           "eval.whole",       "eval.report",     "train.logs",
                                           "optimizer.groups", "optimizer.turns", "run.command",
                                           "run.earlier",      "run.preload",     "eval.metric"};
    const bool is_of_program = job.model == kExternalName || job.dataset == kExternalName ||
                               job.optimizer.is_weighted || of_program.contains(key.name);
    if (is_of_program) job.model = job.dataset = kExternalName;
    if (key.name == "eval.metric") job.eval_mode = "max";
    if (key.name == "model.tensors") job.tensors = {"w [2,3]", "b [2] decay=0"};
    if (key.name == "optimizer.groups") job.optimizer.groups = {"beta1=0.5", "beta1=0.6"};
    if (key.name == "optimizer.groups") job.optimizer.turns = {0, 1};
    if (key.name == "optimizer.turns") job.optimizer.turns = {0};
    if (key.name == "train.steps") job.epochs = 0;
    if (key.name == "run.timeline_steps") job.timeline = "trace.json";
    if (key.name == "eval.every_steps") job.eval_every_epochs = 0;
    if (key.name == "optimizer.nesterov") job.optimizer.momentum = 0.9;
    if (key.name == "optimizer.trust_coefficient") job.optimizer.kind = OptimizerKind::kLars;
    if (key.name == "optimizer.trust_ratio_max") job.optimizer.kind = OptimizerKind::kLamb;
    if (key.name == "optimizer.decoupled_weight_decay") job.optimizer.kind = OptimizerKind::kNadam;
    if (key.name == "schedule.rates") job.schedule.kind = ScheduleKind::kTable;
    if (job.schedule.kind == ScheduleKind::kTable) job.schedule.rates = {"0.1*3", "0.05"};
    Result<Job> read = ParseJobText(WriteJobText(job), "job.toml");
    REQUIRE_MESSAGE(read.ok(), read.status().message());
    for (const JobKey& other : JobKeys()) CHECK(other.get(*read) == other.get(job));
    CHECK(WriteJobText(*read) == WriteJobText(job));
  }
}

TEST_CASE("what a program's run cannot have is refused by name") {
  const auto error_with = [](const std::string& sections) {
    return ParseJobText(
               "[model]\nname = \"external\"\ntensors = [\"w [2]\"]\n[data]\nname = "
               "\"external\"\n" +
                   sections,
               "job.toml")
        .status()
        .message();
  };
  CHECK(error_with("").empty());
  CHECK(error_with("synthetic_test_samples = 0\n").empty());
  CHECK(Contains(error_with("synthetic_train_samples = 0\n"), "data.synthetic_train_samples = 0"));
  CHECK(Contains(error_with("[train]\ncodec = \"bf16\"\n"), "train.codec"));
  CHECK(Contains(error_with("[train]\nprecision = \"bf16\"\n"), "train.precision"));
  CHECK(Contains(error_with("[eval]\nsums = [\"a\", \"a\"]\n"), "eval.sums"));
  CHECK(error_with("[eval]\nsums = [\"loss_sum\"]\nearly_stop_patience = 3\n").empty());
  CHECK(Contains(error_with("[eval]\nsums = [\"mae_sum\"]\nearly_stop_patience = 3\n"),
                 "eval.early_stop_patience"));
  const std::string f1 = "[eval]\nsums = [\"f1\"]\nearly_stop_patience = 3\nmetric = ";
  CHECK(error_with(f1 + "\"f1\"\nmode = \"max\"\n").empty());
  CHECK(Contains(error_with(f1 + "\"f1\"\n"), "give eval.mode max or min"));
  CHECK(Contains(error_with(f1 + "\"f2\"\nmode = \"max\"\n"), "eval.metric"));
  CHECK(Contains(ErrorFor("[eval]\nmetric = \"mae\"\nmode = \"min\"\n"), "eval.metric"));
  CHECK(Contains(error_with("[run]\nstrategy = \"allreduce\"\n"), "run.strategy"));
  CHECK(Contains(error_with("[worker]\nparameter_residency = \"layer\"\n"), "parameter_residency"));
  CHECK(Contains(ParseJobText("[model]\ntensors = [\"w [2]\"]\n", "job.toml").status().message(),
                 "model.tensors"));
  CHECK(Contains(ParseJobText("[model]\nname = \"external\"\n", "job.toml").status().message(),
                 "data.name"));
}

TEST_CASE("names and flags of keys are unique") {
  std::set<std::string> words;
  for (const JobKey& key : JobKeys()) {
    CHECK(words.insert(key.name).second);
    if (!key.flag.empty()) CHECK(words.insert(key.flag).second);
    if (!key.flag_alias.empty()) CHECK(words.insert(key.flag_alias).second);
  }
}

TEST_CASE("the smallest and largest seeds survive") {
  for (const char* seed : {"0", "9223372036854775807"}) {
    Result<Job> job = ParseJobText(std::string("[train]\nseed = ") + seed, "job.toml");
    REQUIRE(job.ok());
    CHECK(Contains(WriteJobText(*job), std::string("seed = ") + seed + "\n"));
  }
  JobDraft draft;
  CHECK_FALSE(draft.AddOverrides({{"train.seed", "9223372036854775808", "--seed"}}).ok());
}

TEST_CASE("unknown names are errors with their line and the nearest name") {
  CHECK(ErrorFor("[train]\nsteps = 3\nglobal_bach = 64\n") ==
        "job.toml:3: unknown key 'train.global_bach'; did you mean 'train.global_batch'?");
  CHECK(ErrorFor("\n[trian]\nsteps = 3\n") ==
        "job.toml:2: unknown section [trian]; did you mean 'train'?");
  CHECK(ErrorFor("lr = 0.1\n") == "job.toml:1: unknown key 'lr'; did you mean 'optimizer.lr'?");
  CHECK(Contains(ErrorFor("[train]\nxyzzy = 1\n"), "docs/job-file.md"));
  CHECK(ErrorFor("[optimizer]\n\ntype = \"adma\"\n") ==
        "job.toml:3: optimizer.type must be one of sgd, adam, adamw, lars, lamb, rmsprop, adagrad, "
        "adadelta, nadam, got \"adma\"; did "
        "you mean "
        "'adam'?");
  CHECK(Contains(ErrorFor("[model]\nname = \"mnist-cn\"\n"), "did you mean 'mnist-cnn'?"));
  CHECK(Contains(ErrorFor("[optimizer.deep]\nlr = 1.0\n"), "unknown key 'optimizer.deep'"));
}

TEST_CASE("what is no TOML says where") {
  CHECK(Contains(ErrorFor("[train]\nsteps = \n"), "job.toml:2: not valid TOML"));
  CHECK(Contains(ErrorFor("[train]\nsteps = 1\nsteps = 2\n"), "job.toml:3: not valid TOML"));
  CHECK(ErrorFor(Repeated("a.", 200'000) + "a = 1\n") == "job.toml: a key has more than 16 dots");
}

TEST_CASE("values of the wrong type or out of range are errors") {
  CHECK(ErrorFor("[train]\nsteps = \"3\"\n") ==
        "job.toml:2: train.steps must be a whole number from 0 to 1000000000000, got '3'");
  CHECK(Contains(ErrorFor("[train]\nglobal_batch = 0\n"), "from 1 to"));
  CHECK(Contains(ErrorFor("[train]\nglobal_batch = -1\n"), "got -1"));
  CHECK(Contains(ErrorFor("[train]\nglobal_batch = 1.5\n"), "whole number"));
  CHECK(Contains(ErrorFor("[train]\nmicro_batches = 0\n"), "train.micro_batches"));
  CHECK(Contains(ErrorFor("[train]\nglobal_batch = 65537\nmicro_batches = 65537\n"), "to 65536"));
  CHECK(Contains(ErrorFor("[train]\nsteps = 1000000000001\n"), "to 1000000000000"));
  CHECK(Contains(ErrorFor("[train]\nepochs = 1e20\n"), "to 1000000"));
  CHECK(Contains(ErrorFor("[eval]\nevery_epochs = 1000001\n"), "to 1000000"));
  CHECK(Contains(ErrorFor("[optimizer]\nlr = 0\n"), "optimizer.lr must be a number > 0"));
  CHECK(Contains(ErrorFor("[optimizer]\nlr = nan\n"), "optimizer.lr"));
  CHECK(Contains(ErrorFor("[optimizer]\nlr = inf\n"), "optimizer.lr"));
  CHECK(Contains(ErrorFor("[optimizer]\nmomentum = 1.0\n"), "≥ 0 and < 1"));
  CHECK(Contains(ErrorFor("[optimizer]\nweight_decay = -0.1\n"), "optimizer.weight_decay"));
  CHECK(Contains(ErrorFor("[optimizer]\nnesterov = 1\n"), "true or false"));
  CHECK(Contains(ErrorFor("[optimizer]\nclip_value = -1.0\n"), "optimizer.clip_value"));
  CHECK(Contains(ErrorFor("[schedule]\nmilestones = [3, -1]\n"), "schedule.milestones"));
  CHECK(Contains(ErrorFor("[schedule]\npct_start = 1.0\n"), "> 0 and < 1"));
  CHECK(Contains(ErrorFor("[model]\nhidden = [128, 0]\n"), "model.hidden"));
  CHECK(Contains(ErrorFor("[model]\nhidden = [128, \"x\"]\n"), "model.hidden"));
  CHECK(Contains(ErrorFor("[run]\nthreads = 0\n"), "run.threads"));
  CHECK(Contains(ErrorFor("[run]\nworkers = 0\n"), "run.workers"));
  CHECK(Contains(ErrorFor("[run]\nreplicas = 4\n"), "from 1 to 3"));
  CHECK(Contains(ErrorFor("[snapshot]\nkeep = 0\n"), "snapshot.keep"));
  CHECK(Contains(ErrorFor("[snapshot]\nevery = -1\n"), "snapshot.every"));
  CHECK(Contains(ErrorFor("[verify]\nevery = 0.5\n"), "whole number"));
  CHECK(Contains(ErrorFor("[run]\ntransport = \"udp\"\n"), "auto, tcp, ipc, shm"));
}

TEST_CASE("values that do not fit each other name both and where they stand") {
  CHECK(ErrorFor("[train]\nglobal_batch = 4\nmicro_batches = 8\n")
            .starts_with("train.micro_batches = 8 (job.toml:3) does not fit train.global_batch = 4 "
                         "(job.toml:2)"));
  CHECK(Contains(ErrorFor("[train]\nsteps = 3\nepochs = 1\n"), "both say how long the run is"));
  CHECK(
      Contains(ErrorFor("[eval]\nevery_steps = 3\nevery_epochs = 1\n"),
               "eval.every_steps = 3 (job.toml:2) and eval.every_epochs = 1 (job.toml:3) both say "
               "how often the run is evaluated"));
  CHECK(Contains(ErrorFor("[train]\nsteps = 0\nepochs = 0\n"), "nothing to train"));
  CHECK(Contains(ErrorFor("[train]\nepochs = 0\n"), "nothing to train"));
  CHECK(Contains(ErrorFor("[run]\nlease_ms = 500\n"), "run.heartbeat_ms = 250 (the default)"));
  CHECK(Contains(ErrorFor("[optimizer]\nnesterov = true\n"), "optimizer.momentum = 0.0"));
  CHECK(Contains(ErrorFor("[optimizer]\nnesterov = true\nmomentum = 0.9\ndampening = 0.1\n"),
                 "optimizer.dampening = 0.1"));
  CHECK(Contains(ErrorFor("[optimizer]\nclip_value = 1.0\nclip_norm = 2.0\n"),
                 "both clip the gradient"));
  CHECK(Contains(ErrorFor("[optimizer]\ntype = \"lamb\"\nclip_norm = 2.0\n"),
                 "does not go with optimizer.type = \"lamb\" (job.toml:2)"));
  CHECK(Contains(ErrorFor("[optimizer]\ntype = \"lars\"\nmomentum = 0.9\nnesterov = true\n"),
                 "has plain momentum"));
  CHECK(Contains(ErrorFor("[optimizer]\ntrust_coefficient = 0.1\n"), "read by lars alone"));
  CHECK(Contains(ErrorFor("[optimizer]\ntrust_ratio_max = 1.0\n"), "read by lamb alone"));
  CHECK(Contains(ErrorFor("[schedule]\ntype = \"step\"\n"), "schedule.step_size"));
  CHECK(Contains(ErrorFor("[schedule]\ntype = \"multi-step\"\n"), "schedule.milestones"));
  CHECK(Contains(ErrorFor("[schedule]\ntype = \"exponential\"\n"), "schedule.gamma"));
  CHECK(Contains(ErrorFor("[schedule]\ntype = \"cosine\"\nmin_lr = 0.5\n"), "above optimizer.lr"));
  CHECK(Contains(ErrorFor("[eval]\nevery_epochs = 0\nearly_stop_patience = 2\n"),
                 "needs evaluations during the run"));
  CHECK(Contains(ErrorFor("[model]\nname = \"external\"\n[data]\nname = \"external\"\n"
                          "validation = 0.1\n"),
                 "data.validation = 0.1 (job.toml:5): model.name = \"external\""));
  CHECK(Contains(ErrorFor("[train]\nweighted = true\n"),
                 "train.weighted = true (job.toml:2): the weights are of an external model, but "
                 "model.name = \"mnist-cnn\""));
  CHECK(Contains(ErrorFor("[model]\nname = \"external\"\n[data]\nname = \"external\"\n"
                          "[train]\nweighted = true\n[optimizer]\ntype = \"lars\"\n"),
                 "does not go with optimizer.type = \"lars\" (job.toml:8)"));
  CHECK(Contains(ErrorFor("[schedule]\ntype = \"one-cycle\"\nbase_momentum = 0.97\n"),
                 "schedule.max_momentum"));
}

TEST_CASE("flags and --set override the file, and silence its other length") {
  JobDraft draft;
  REQUIRE(draft.AddToml("[train]\nepochs = 3\nglobal_batch = 64\n", "job.toml").ok());
  REQUIRE(draft
              .AddOverrides({{"train.steps", "5", "--steps"},
                             {"optimizer.lr", "1e-3", "--lr"},
                             {"model.hidden", "512,256", "--set"}})
              .ok());
  Result<Job> job = draft.Finish();
  REQUIRE(job.ok());
  CHECK(job->steps == 5);
  CHECK(job->epochs == 0);
  CHECK(job->global_batch == 64);
  CHECK(job->optimizer.lr == 1e-3);
  CHECK(job->mlp_hidden == std::vector<uint64_t>{512, 256});
  CHECK(draft.IsGiven("train.steps"));
  CHECK_FALSE(draft.IsGiven("data.name"));

  JobDraft back;
  REQUIRE(back.AddToml("[train]\nsteps = 5\n", "job.toml").ok());
  REQUIRE(back.AddOverrides({{"train.epochs", "0.5", "--epochs"}}).ok());
  CHECK(back.Finish()->steps == 0);
}

TEST_CASE("evaluations by steps silence those by epochs, and the other way round") {
  Result<Job> job = ParseJobText("[eval]\nevery_steps = 50\n", "job.toml");
  REQUIRE(job.ok());
  CHECK(job->eval_every_steps == 50);
  CHECK(job->eval_every_epochs == 0);

  JobDraft draft;
  REQUIRE(draft.AddToml("[eval]\nevery_steps = 50\n", "job.toml").ok());
  REQUIRE(draft.AddOverrides({{"eval.every_epochs", "2", "--eval-every-epochs"}}).ok());
  CHECK(draft.Finish()->eval_every_steps == 0);
  CHECK(draft.Finish()->eval_every_epochs == 2);
}

TEST_CASE("texts that are no values of their key are errors that name the flag") {
  for (const Override& wrong : std::vector<Override>{{"train.steps", "3x", "--steps"},
                                                     {"train.steps", "", "--steps"},
                                                     {"train.steps", "-3", "--steps"},
                                                     {"optimizer.lr", "fast", "--lr"},
                                                     {"optimizer.nesterov", "yes", "--set"},
                                                     {"model.hidden", "12,,3", "--set"},
                                                     {"model.hidden", "12;3", "--set"},
                                                     {"optimiser.lr", "1", "--set"}}) {
    JobDraft draft;
    Status s = draft.AddOverrides({wrong});
    CAPTURE(wrong.text);
    REQUIRE_FALSE(s.ok());
    CHECK(s.message().starts_with(wrong.where + ": "));
  }
}

TEST_CASE(
    "identity leaves out [worker], [snapshot], [verify] and [run], and runs of one job have "
    "different ids") {
  Job job;
  Job elsewhere = job;
  elsewhere.workers = 7;
  elsewhere.run_dir = "somewhere";
  elsewhere.replicas = 1;
  elsewhere.snapshot_every = 7;
  elsewhere.snapshot_keep = 5;
  elsewhere.snapshot_best = true;
  elsewhere.verify_every = 4;
  elsewhere.activation_checkpointing = true;
  elsewhere.parameter_residency = ParameterResidency::kLayer;
  elsewhere.scheduler_timeout_ms = 1000;
  CHECK(JobIdentityText(job) == JobIdentityText(elsewhere));
  CHECK(WriteJobText(job) != WriteJobText(elsewhere));
  CHECK(MakeJobId(job, 1) == MakeJobId(elsewhere, 1));
  CHECK(MakeJobId(job, 1) != MakeJobId(job, 2));
  Job other = job;
  other.seed = 2;
  CHECK(MakeJobId(job, 1) != MakeJobId(other, 1));
}

TEST_CASE("a missing job file is named") {
  Result<Job> job = ReadJobFile("no/such/job.toml");
  REQUIRE_FALSE(job.ok());
  CHECK(job.status().message() == "cannot read no/such/job.toml: No such file or directory");
}

TEST_CASE("docs/job-file.md is what the table of keys says") {
  const char* root = std::getenv("PANDO_SOURCE_ROOT");
  REQUIRE(root != nullptr);
  Result<std::string> doc = ReadTextFile(std::string(root) + "/docs/job-file.md");
  REQUIRE(doc.ok());
  INFO("generate it: pando help job-file > docs/job-file.md");
  CHECK(*doc == JobFileDoc());
}

}  // namespace
}  // namespace pando
