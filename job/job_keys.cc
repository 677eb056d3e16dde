// The table of the job file's keys, and how a row makes a key from a member of Job.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "common/check.h"
#include "common/text.h"
#include "data/dataset.h"
#include "job/job_key.h"
#include "models/zoo.h"
#include "proto/message_limits.h"

namespace pando {
namespace {

constexpr ValueRange kAtLeastOne{.min = 1};
constexpr ValueRange kPositive{.min = 0, .is_min_excluded = true};
constexpr ValueRange kUint32{.min = 1, .max = 1e9};
constexpr ValueRange kSamples{.min = 0, .max = 1e12};
// Epochs times steps per epoch, and steps times samples, stay far below the range of 64 bits.
constexpr ValueRange kSteps{.min = 0, .max = 1e12};
constexpr ValueRange kEpochs{.min = 0, .max = 1e6};
constexpr ValueRange kMicroBatches{.min = 1, .max = kMicroBatchesMax};
constexpr ValueRange kThreads{.min = 1, .max = 1024};
constexpr ValueRange kLanes{.min = 0, .max = 256};
constexpr ValueRange kSide{.min = 0, .max = 4096};
constexpr ValueRange kStaleness{.min = 0, .max = kStalenessMax};
constexpr ValueRange kBelowOne{.min = 0, .max = 1, .is_max_excluded = true};
constexpr ValueRange kUnit{.min = 0, .max = 1};
constexpr ValueRange kOpenUnit{
    .min = 0, .max = 1, .is_min_excluded = true, .is_max_excluded = true};
constexpr ValueRange kShare{.min = 0, .max = 1, .is_min_excluded = true};
constexpr ValueRange kLossScale{.min = 0, .max = 1e9};
constexpr ValueRange kScalePower{.min = 0, .max = 30};
constexpr ValueRange kScaleWindow{.min = 1, .max = 1e6};
constexpr ValueRange kPatience{.min = 0, .max = 1e9};
constexpr ValueRange kServersMax{.min = 0, .max = 1024};
constexpr ValueRange kReplicas{.min = 1, .max = 3};
constexpr ValueRange kSnapshots{.min = 1, .max = 1000};
constexpr ValueRange kMilliseconds{.min = 1, .max = 86'400'000};

template <class T>
JobValue ToValue(const T& field) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(EnumName(field));
  } else if constexpr (std::is_same_v<T, uint32_t>) {
    return uint64_t{field};
  } else {
    return field;
  }
}

template <class T>
void FromValue(const JobValue& value, T* field) {
  if constexpr (std::is_enum_v<T>) {
    const std::optional<T> parsed = ParseEnum<T>(std::get<std::string>(value));
    PANDO_CHECK(parsed.has_value());
    *field = *parsed;
  } else if constexpr (std::is_same_v<T, uint32_t>) {
    *field = static_cast<uint32_t>(std::get<uint64_t>(value));
  } else {
    *field = std::get<T>(value);
  }
}

template <class T>
ValueKind KindFor() {
  if constexpr (std::is_enum_v<T>) return ValueKind::kChoice;
  if constexpr (std::is_same_v<T, bool>) return ValueKind::kBool;
  if constexpr (std::is_same_v<T, double>) return ValueKind::kReal;
  if constexpr (std::is_integral_v<T>) return ValueKind::kCount;
  if constexpr (std::is_same_v<T, std::vector<uint64_t>>) return ValueKind::kCountList;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return ValueKind::kTextList;
  return ValueKind::kText;
}

template <class Owner, class T>
Owner OwnerFor(T Owner::*);

// Returns the part of the job that has such options.
template <class Owner, class AnyJob>
auto& FindOwner(AnyJob& job) {
  if constexpr (std::is_same_v<Owner, OptimizerOptions>) {
    return job.optimizer;
  } else if constexpr (std::is_same_v<Owner, LossScaleOptions>) {
    return job.optimizer.loss_scale;
  } else if constexpr (std::is_same_v<Owner, ScheduleOptions>) {
    return job.schedule;
  } else {
    return job;
  }
}

// Describes a member of Job or of its options, for example &OptimizerOptions::lr.
template <auto kMember>
JobMember At() {
  using Owner = decltype(OwnerFor(kMember));
  using T = std::remove_cvref_t<decltype(std::declval<Owner&>().*kMember)>;
  JobMember member{
      .kind = KindFor<T>(),
      .get = [](const Job& job) { return ToValue<T>(FindOwner<Owner>(job).*kMember); },
      .set = [](Job& job,
                const JobValue& v) { FromValue<T>(v, &(FindOwner<Owner>(job).*kMember)); }};
  if constexpr (std::is_enum_v<T>)
    member.choices.assign(kEnumNames<T>.begin(), kEnumNames<T>.end());
  return member;
}

// Describes a text, or a list of texts, each of which is one of `choices` or ends in `file_suffix`.
template <auto kMember>
JobMember Among(std::vector<std::string> choices, std::string_view file_suffix = {}) {
  JobMember member = At<kMember>();
  if (member.kind == ValueKind::kText) member.kind = ValueKind::kChoice;
  member.choices = std::move(choices);
  member.file_suffix = file_suffix;
  return member;
}

std::vector<std::string> WithExternal(std::vector<std::string> names) {
  names.emplace_back(kExternalName);
  return names;
}

// Describes train.pull_codec. Parameters travel whole, so only the first codecs are allowed.
JobMember PullCodec() {
  JobMember member = At<&Job::pull_codec>();
  member.choices.resize(4);
  return member;
}

using O = OptimizerOptions;
using L = LossScaleOptions;
using S = ScheduleOptions;

// Every key, in the order of the file.
const std::vector<JobKey> kKeys = {
    // [model] and [data].
    {Among<&Job::model>(WithExternal(ZooNames()), kNetworkFileSuffix), "model.name", "--model", "",
     "the network to train; external: that of a program, which declares it (docs/pytorch.md)"},
    {At<&Job::network>(), "model.network", "", "",
     "text of the network file that model.name names; empty: read from that file "
     "(docs/networks.md)"},
    {At<&Job::mlp_hidden>(), "model.hidden", "", "units", "widths of the mlp's hidden layers",
     kUint32},
    {At<&Job::init>(), "model.init", "--init", "file",
     "start from the weights of this safetensors file, with PyTorch's names; empty: from the seed"},
    {At<&Job::init_partial>(), "model.init_partial", "--init-partial", "",
     "take from model.init what fits the model, and draw the rest from the seed"},
    {At<&Job::init_hash>(), "model.init_hash", "", "",
     "hash of the weights that the run starts from; filled in when it starts"},
    {At<&Job::tensors>(), "model.tensors", "", "",
     "of an external model: its tensors, as \"conv1.weight [64,3,7,7]\"; filled in when it is "
     "declared"},
    {At<&Job::constants>(), "model.constants", "", "",
     "of an external model: the frozen parameters and buffers, as \"embed.weight "
     "1f2e3d4c5b6a7988\" "
     "(name and hash of the values); filled in when it is declared"},
    {At<&Job::program>(), "model.program", "", "", "of an external model: its name in the program"},
    {Among<&Job::dataset>(WithExternal(DataSetNames())), "data.name", "--dataset", "",
     "the data set; external: that of a program"},
    {At<&Job::data_path>(), "data.path", "--data", "folder",
     "folder of the data set's files; empty: data/NAME or ../shared/data/NAME"},
    {At<&Job::label>(), "data.label", "--label", "", "column of a csv that has the classes"},
    {At<&Job::columns>(), "data.columns", "--columns", "",
     "columns of a table to learn from, by name; empty: of a csv all but the label, of sdss u, g, "
     "r, i, z and redshift"},
    {At<&Job::test_share>(), "data.test_share", "--test-share", "",
     "share of a table's rows that are test samples; a folder's train.csv and test.csv are split "
     "already",
     kOpenUnit},
    {At<&Job::validation_share>(), "data.validation", "--validation", "",
     "share of the training samples that is not trained on, drawn from the seed: evaluations, best "
     "version and early stopping use it, and the test set is left for pando evaluate; 0: none",
     kBelowOne},
    {At<&Job::missing>(), "data.missing", "--missing", "",
     "missing values of a table: an error; the column's mean; or a category, which is one more "
     "input of the column"},
    {Among<&Job::augment>({"crop", "flip"}), "data.augment", "--augment", "",
     "random augmentation: crop (a shift by up to an eighth of the side; a resized part of a "
     "photograph), flip (left to right); empty: none"},
    {At<&Job::resize>(), "data.resize", "--resize", "pixels",
     "new side of pictures; 0: unchanged, photographs 224", kSide},
    {At<&Job::train_limit>(), "data.limit", "--limit", "samples",
     "training samples, a subset drawn from the seed; 0: all", kSteps},
    {At<&Job::test_limit>(), "data.test_limit", "", "samples",
     "test samples, a subset drawn from the seed; 0: all", kSteps},
    {At<&Job::skip_list>(), "data.skip", "", "file",
     "skip list of an imagefolder: pictures to leave out, as `pando data check` writes it; a "
     "relative path starts at the data folder"},
    {At<&Job::synthetic_train_samples>(), "data.synthetic_train_samples", "", "samples",
     "training samples of synthetic and external data sets", kSamples},
    {At<&Job::synthetic_test_samples>(), "data.synthetic_test_samples", "", "samples",
     "test samples of synthetic and external data sets; 0: an external one has none", kSamples},
    // [train].
    {At<&Job::steps>(), "train.steps", "--steps", "steps",
     "length of the run in steps; 0: by train.epochs", kSteps},
    {At<&Job::epochs>(), "train.epochs", "--epochs", "epochs",
     "length of the run in epochs, rounded up to a step; 0: by train.steps", kEpochs},
    {At<&Job::global_batch>(), "train.global_batch", "--global-batch", "samples",
     "samples of one step, over all workers", kUint32},
    {At<&Job::micro_batches>(), "train.micro_batches", "--micro-batches", "per step",
     "parts of a step that workers compute; they fix the result for any number of workers",
     kMicroBatches},
    {At<&Job::local_steps>(), "train.local_steps", "--local-steps", "",
     "local steps on the parts of each micro-batch; above 1 the servers get only their difference, "
     "to which [optimizer] is applied (DiLoCo)",
     kAtLeastOne},
    {At<&Job::inner>(), "train.inner", "", "",
     "the optimizer of local steps, which starts each round afresh, as \"type=adamw lr=0.001\"; "
     "with warmup_steps=N its rate rises linearly in the first steps of the run, and with "
     "end_factor=X it falls linearly to X times lr"},
    {At<&Job::staleness>(), "train.staleness", "--staleness", "versions",
     "1: a step reads the version before the newest, so that its exchange runs while the next step "
     "is computed",
     kStaleness},
    {At<&Job::last_batch>(), "train.last_batch", "", "",
     "the last batch of an epoch, if the data do not fill it"},
    {At<&Job::seed>(), "train.seed", "--seed", "",
     "seed of weights, shuffling, dropout, synthetic data"},
    {At<&Job::label_smoothing>(), "train.label_smoothing", "--label-smoothing", "",
     "share of a label that is spread over all classes, in training", kBelowOne},
    {At<&Job::train_logs>(), "train.logs", "", "",
     "of an external model: names of further means of each step, which its program logs"},
    {At<&O::is_weighted>(), "train.weighted", "", "",
     "of a program: it gives each micro-batch a weight, for example its tokens, and gradient and "
     "loss are means over the weights instead of the samples"},
    {At<&Job::activation_checkpointing>(), "train.activation_checkpointing",
     "--activation-checkpointing", "",
     "drop most activations and recompute them in backward: less memory, more time, the same "
     "result"},
    {At<&Job::precision>(), "train.precision", "--precision", "",
     "activations on GPUs; parameters and sums of gradients are always floats. CPUs compute in "
     "floats and do not join bf16 and fp16"},
    {At<&Job::allow_nondeterministic>(), "train.allow_nondeterministic", "--allow-nondeterministic",
     "", "allow faster GPU algorithms whose bits differ from run to run"},
    {At<&Job::push_codec>(), "train.codec", "--codec", "",
     "encoding of gradients on their way to servers, which sum floats: fp16, bf16 and int8 (one "
     "scale per 256 values) are shorter and less exact. 1-bit and top-k send little and add the "
     "error to the next gradient, so a fault changes the weights. With a codec each micro-batch "
     "travels separately"},
    {At<&Job::top_k_share>(), "train.top_k_share", "", "",
     "top-k: share of a gradient's values that is sent", kShare},
    {PullCodec(), "train.pull_codec", "--pull-codec", "",
     "encoding of parameters on their way to workers, which compute with what arrives; servers "
     "keep floats"},
    // [fp16].
    {At<&L::loss_scale>(), "fp16.loss_scale", "", "",
     "factor of the loss; 0: dynamic, by the next keys. Steps with an overflow are skipped",
     kLossScale},
    {At<&L::initial_scale_power>(), "fp16.initial_scale_power", "", "",
     "the first dynamic factor is 2 to this power", kScalePower},
    {At<&L::loss_scale_window>(), "fp16.loss_scale_window", "", "steps",
     "steps without an overflow before it doubles", kScaleWindow},
    {At<&L::hysteresis>(), "fp16.hysteresis", "", "steps",
     "steps with an overflow before it halves", kScaleWindow},
    {At<&L::min_loss_scale>(), "fp16.min_loss_scale", "", "",
     "an overflow at this factor ends the run", kPositive},
    // [optimizer].
    {At<&O::kind>(), "optimizer.type", "--optimizer", "",
     "the optimizer; PyTorch's formulas, LARS and LAMB as published"},
    {At<&O::lr>(), "optimizer.lr", "--lr", "", "learning rate; the highest of a schedule",
     kPositive},
    {At<&O::momentum>(), "optimizer.momentum", "--momentum", "",
     "momentum of sgd, lars and rmsprop", kBelowOne},
    {At<&O::dampening>(), "optimizer.dampening", "", "", "sgd: dampening of the momentum", kUnit},
    {At<&O::nesterov>(), "optimizer.nesterov", "", "", "sgd: Nesterov's momentum"},
    {At<&O::beta1>(), "optimizer.beta1", "", "", "adam, adamw, lamb, nadam: decay of the mean",
     kBelowOne},
    {At<&O::beta2>(), "optimizer.beta2", "", "", "adam, adamw, lamb, nadam: decay of the square",
     kBelowOne},
    {At<&O::eps>(), "optimizer.eps", "", "",
     "not of sgd and lars: added to the root, or to the square (adadelta); the default is 1e-06 "
     "for adadelta, and 1e-10 for adagrad",
     kPositive},
    {At<&O::alpha>(), "optimizer.alpha", "", "", "rmsprop: decay of the square", kBelowOne},
    {At<&O::centered>(), "optimizer.centered", "", "",
     "rmsprop: divide by the root of the variance, not of the square"},
    {At<&O::rho>(), "optimizer.rho", "", "", "adadelta: decay of the squares", kBelowOne},
    {At<&O::lr_decay>(), "optimizer.lr_decay", "", "",
     "adagrad: rate = lr / (1 + this · steps before)"},
    {At<&O::initial_accumulator_value>(), "optimizer.initial_accumulator_value", "", "",
     "adagrad: the sum of squares at first"},
    {At<&O::momentum_decay>(), "optimizer.momentum_decay", "", "",
     "nadam: how fast the momentum rises from beta1 / 2 to beta1"},
    {At<&O::weight_decay>(), "optimizer.weight_decay", "--weight-decay", "",
     "share of the weights added to the gradient; adamw: subtracted from the weights; lamb: added "
     "to the direction"},
    {At<&O::decoupled_weight_decay>(), "optimizer.decoupled_weight_decay", "", "",
     "nadam: subtract the decay from the weights, as adamw"},
    {At<&O::weight_decay_exclude_bias_and_norm>(), "optimizer.weight_decay_exclude_bias_and_norm",
     "", "",
     "no decay of one-dimensional tensors (biases, weights of norms); always on for lars and lamb"},
    {At<&O::weight_clip>(), "optimizer.weight_clip", "", "",
     "bound of each weight after its update, as in Wasserstein GANs; 0: none"},
    {At<&O::groups>(), "optimizer.groups", "", "",
     "of an external model: the options of each group of parameters, as \"type=adam beta1=0.5\""},
    {At<&O::turns>(), "optimizer.turns", "", "",
     "of an external model: the groups that steps 0, 1, ... train, as [0, 1]; they repeat"},
    {At<&O::clip_value>(), "optimizer.clip_value", "", "",
     "bound of each element of the gradient, before decay; 0: none"},
    {At<&O::clip_norm>(), "optimizer.clip_norm", "--clip-norm", "",
     "bound of the norm of the whole gradient, before decay; 0: none"},
    {At<&O::trust_coefficient>(), "optimizer.trust_coefficient", "", "",
     "lars: a layer's rate is lr · this · norm of its weights / norm of its gradient and decay",
     kPositive},
    {At<&O::trust_ratio_max>(), "optimizer.trust_ratio_max", "", "",
     "lamb: bound of norm of a layer's weights / norm of its update; DeepSpeed's max_coeff",
     kPositive},
    {At<&O::ema_decay>(), "optimizer.ema_decay", "--ema-decay", "",
     "share that the average of the weights keeps at each step, for example 0.999; pando export "
     "--ema writes the average; 0: none",
     kBelowOne},
    // [schedule].
    {At<&S::kind>(), "schedule.type", "--schedule", "", "the learning rate over the run"},
    {At<&S::warmup_steps>(), "schedule.warmup_steps", "", "steps", "linear rise before any type"},
    {At<&S::step_size>(), "schedule.step_size", "", "steps", "step: steps between decays"},
    {At<&S::milestones>(), "schedule.milestones", "", "steps",
     "multi-step: steps of the decays, after warm-up", kSteps},
    {At<&S::gamma>(), "schedule.gamma", "", "",
     "step, multi-step: factor of each decay; exponential: of a step", kPositive},
    {At<&S::start_factor>(), "schedule.start_factor", "", "",
     "linear: rate at the start = lr · this", kUnit},
    {At<&S::end_factor>(), "schedule.end_factor", "", "", "linear: rate at the end = lr · this",
     kUnit},
    {At<&S::total_iters>(), "schedule.total_iters", "", "steps",
     "linear, polynomial: steps from start to end; 0: all after warm-up", kSteps},
    {At<&S::power>(), "schedule.power", "", "",
     "polynomial: rate = lr · (share of steps left)^this"},
    {At<&S::rates>(), "schedule.rates", "", "",
     "table: the rate of each step; \"0.1*390\" stands for 390 steps"},
    {At<&S::min_lr>(), "schedule.min_lr", "", "", "cosine: rate at the end"},
    {At<&S::pct_start>(), "schedule.pct_start", "", "",
     "one-cycle: share of the run with a rising rate", kOpenUnit},
    {At<&S::div_factor>(), "schedule.div_factor", "", "",
     "one-cycle: rate at the start = lr / this", kAtLeastOne},
    {At<&S::final_div_factor>(), "schedule.final_div_factor", "", "",
     "one-cycle: rate at the end = rate at the start / this", kAtLeastOne},
    {At<&S::cycle_momentum>(), "schedule.cycle_momentum", "", "",
     "one-cycle: momentum (adam: beta1) moves inversely to the rate"},
    {At<&S::base_momentum>(), "schedule.base_momentum", "", "", "one-cycle: lowest momentum",
     kBelowOne},
    {At<&S::max_momentum>(), "schedule.max_momentum", "", "", "one-cycle: highest momentum",
     kBelowOne},
    // [eval].
    {At<&Job::eval_every_epochs>(), "eval.every_epochs", "--eval-every-epochs", "epochs",
     "epochs between evaluations; 0: by eval.every_steps, or only at the end", kEpochs},
    {At<&Job::eval_every_steps>(), "eval.every_steps", "--eval-every-steps", "steps",
     "steps between evaluations; 0: by eval.every_epochs", kSteps},
    {At<&Job::early_stop_patience>(), "eval.early_stop_patience", "--early-stop-patience",
     "evaluations",
     "stop after this many evaluations in a row without improvement of eval.metric; 0: never",
     kPatience},
    {At<&Job::eval_metric>(), "eval.metric", "", "",
     "what early stopping and snapshot.best compare, one of eval.sums, per sample; correct is the "
     "accuracy; empty: correct, or loss_sum where a program gives no correct"},
    {Among<&Job::eval_mode>({"auto", "max", "min"}), "eval.mode", "", "",
     "whether the best value of eval.metric is the largest or the smallest; auto: max for correct, "
     "min for a name with loss in it"},
    {At<&Job::early_stop_min_delta>(), "eval.early_stop_min_delta", "--early-stop-min-delta", "",
     "smallest improvement that counts", kBelowOne},
    {At<&Job::eval_sums>(), "eval.sums", "", "",
     "of an external model: the sums of an evaluation, in the program's order; loss_sum and "
     "correct "
     "are known"},
    {At<&Job::eval_whole>(), "eval.whole", "", "",
     "of an external model: one worker evaluates the whole test set, for means that are no sums"},
    {At<&Job::eval_report>(), "eval.report", "", "",
     "of a program: one worker runs the program's function after each evaluation; beside: steps go "
     "on meanwhile; decides: the function may end the run, and steps wait for it"},
    // [worker], [snapshot], [verify] and [run]: nothing there changes the result.
    {At<&Job::parameter_residency>(), "worker.parameter_residency", "", "",
     "parameters in a worker: all, or one layer at a time, pulled before use and dropped after it: "
     "less memory, more traffic, the same result"},
    {At<&Job::snapshot_every>(), "snapshot.every", "--snapshot-every", "steps",
     "steps between snapshots of the job; 0: only at its end", kSteps},
    {At<&Job::snapshot_keep>(), "snapshot.keep", "", "snapshots",
     "number of newest complete snapshots to keep", kSnapshots},
    {At<&Job::snapshot_best>(), "snapshot.best", "--snapshot-best", "",
     "also store evaluated versions, and keep the one with the best eval.metric"},
    {Among<&Job::snapshot_store>({"scheduler", "folder"}), "snapshot.store", "", "",
     "where servers send snapshots: to the scheduler, which keeps them in the run folder, or into "
     "that folder themselves, which all machines then share"},
    {At<&Job::verify_every>(), "verify.every", "--verify-every", "micro-batches",
     "two workers compute one of this many micro-batches, and the results are compared; 0: none",
     kSteps},
    // [run]: the processes, and how they compute and communicate.
    {At<&Job::strategy>(), "run.strategy", "--strategy", "",
     "what makes the next version: parameter servers, the workers by allreduce, or one process "
     "(--serial)"},
    {At<&Job::allreduce>(), "run.allreduce", "", "",
     "algorithm of --strategy allreduce; auto: NCCL if each worker has its own GPU, else gloo, by "
     "ring if a step's gradients have 2 MiB or more"},
    {At<&Job::workers>(), "run.workers", "--workers", "processes",
     "worker processes: they compute gradients", kThreads},
    {At<&Job::servers>(), "run.servers", "--servers", "processes",
     "server processes: they hold the parameters", kThreads},
    {At<&Job::servers_max>(), "run.servers_max", "", "servers",
     "shards are cut small enough for N servers; more may join; fixed when the run begins; 0: "
     "run.servers, at least 16",
     kServersMax},
    {At<&Job::replicas>(), "run.replicas", "--replicas", "servers",
     "servers that hold each shard; with 2, a server's death loses nothing; with 3, two servers "
     "may "
     "die at once, and a server that computes wrong bits is outvoted",
     kReplicas},
    {At<&Job::device>(), "run.device", "--device", "",
     "where workers compute: auto (one GPU per worker, if there are any), cpu, cuda, or cuda:N for "
     "one GPU"},
    {At<&Job::threads>(), "run.threads", "--threads", "per worker",
     "computing threads of each worker; one on a GPU", kThreads},
    {At<&Job::reader_threads>(), "run.reader_threads", "--reader-threads", "per worker",
     "threads of each worker that read and decode samples ahead", kThreads},
    {At<&Job::data_cache>(), "run.data_cache", "--data-cache", "folder",
     "where workers keep decoded and resized photographs, at most 256 GiB per split; empty: "
     "nowhere"},
    {At<&Job::lanes>(), "run.lanes", "", "per server",
     "serving threads of each server; 0: by cores", kLanes},
    {Among<&Job::transport>({"auto", "tcp", "ipc", "shm"}), "run.transport", "--transport", "",
     "transport of gradients and parameters: shm (memory that processes of one host share), auto "
     "(shm if possible), tcp, or ipc (Unix sockets between the processes of pando train)"},
    {Among<&Job::encrypt>({"all", "control", "none"}), "run.encrypt", "--encrypt", "",
     "with keys: encrypt all TCP connections, or control: those to the scheduler, and gradients "
     "and parameters in clear text (docs/security.md); none: pando train makes no keys"},
    {At<&Job::host_sum>(), "run.host_sum", "--host-sum", "",
     "sum the gradients of one host's workers on the host, so that one copy leaves it: auto (for "
     "shards whose server is on another host), always, never"},
    {At<&Job::rack_sum>(), "run.rack_sum", "--rack-sum", "",
     "sum the gradients of the workers of one rack (--label rack=NAME), so that one copy leaves "
     "it: auto (if there are more than 128 hosts of one worker each), always, never"},
    // [run]: the files of the run, and its timers.
    {At<&Job::name>(), "run.name", "", "", "the run's name; empty: MODEL-DATA-TIME"},
    {At<&Job::run_dir>(), "run.dir", "--run-dir", "folder", "the run's folder; empty: runs/NAME"},
    {At<&Job::command>(), "run.command", "", "",
     "of an external model: the program that each worker runs and its arguments; `pando run` fills "
     "it in"},
    {At<&Job::earlier>(), "run.earlier", "", "",
     "of an external model: the folders of the program's completed runs; `pando run` fills it in"},
    {At<&Job::preload>(), "run.preload", "", "",
     "of an external model: fork the workers from one process that has run the program up to the "
     "run, so that a killed one is back at once (docs/pytorch.md)"},
    {At<&Job::log_every_steps>(), "run.log_every", "", "steps", "steps between rows of metrics.csv",
     kAtLeastOne},
    {At<&Job::timeline>(),
     "run.timeline",
     "--timeline",
     "file",
     "trace of all processes to write, for Perfetto or chrome://tracing; empty: none",
     {},
     "--timeline-filename"},  // as in Horovod
    {At<&Job::timeline_steps>(), "run.timeline_steps", "--timeline-steps", "steps",
     "steps to record: A:B is A to B - 1; empty: all, until a process has written 256 MiB"},
    {At<&Job::heartbeat_ms>(), "run.heartbeat_ms", "", "ms", "time between heartbeats of a process",
     kMilliseconds},
    {At<&Job::lease_ms>(), "run.lease_ms", "", "ms",
     "silence after which a process is declared dead", kMilliseconds},
    {At<&Job::start_timeout_ms>(), "run.start_timeout_ms", "", "ms",
     "time to wait for all processes at the start", kMilliseconds},
    {At<&Job::scheduler_timeout_ms>(), "run.scheduler_timeout_ms", "", "ms",
     "silence of the scheduler after which servers and workers leave", kMilliseconds}};

constexpr auto kForeignNames = std::to_array<std::pair<std::string_view, const char*>>(
    {{"learning_rate", "optimizer.lr"},
     {"batch_size", "train.global_batch"},
     {"gradient_accumulation_steps", "train.micro_batches"},
     {"num_epochs", "train.epochs"},
     {"num_workers", "run.workers"},
     {"nproc_per_node", "run.workers"},
     {"output_dir", "run.dir"},
     {"arch", "model.name"}});

}  // namespace

const std::vector<JobKey>& JobKeys() { return kKeys; }

const JobKey* FindJobKey(std::string_view name) {
  const auto at = std::ranges::find(JobKeys(), name, &JobKey::name);
  return at == JobKeys().end() ? nullptr : &*at;
}

const JobKey* FindForeignKey(std::string_view word) {
  std::string name(word.substr(std::min(word.find_first_not_of('-'), word.size())));
  std::ranges::replace(name, '-', '_');
  const auto it =
      std::ranges::find(kForeignNames, name, &std::pair<std::string_view, const char*>::first);
  return it == kForeignNames.end() ? nullptr : FindJobKey(it->second);
}

std::string SuggestJobKey(std::string_view wrong) {
  if (const JobKey* key = FindForeignKey(wrong.substr(wrong.rfind('.') + 1)))
    return fmt::format("here it is '{}'", key->name);
  std::vector<std::string> names;
  for (const JobKey& key : JobKeys()) {
    // The likeliest mistake is a right key in the wrong section or in none.
    if (wrong.substr(wrong.rfind('.') + 1) == key.leaf())
      return fmt::format("did you mean '{}'?", key.name);
    names.push_back(key.name);
  }
  return DidYouMean(wrong, names);
}

}  // namespace pando
