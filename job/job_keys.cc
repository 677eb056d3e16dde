#include "job/job_keys.h"

#include <fmt/format.h>

#include "common/nearest_name.h"
#include "job/job_key_makers.h"
#include "models/network.h"
#include "models/network_file.h"

namespace pando {
namespace {

using O = OptimizerOptions;
using L = LossScaleOptions;
using S = ScheduleOptions;

// Every key, in the order of the file.
const KeyRow kRows[] = {
    // [model] and [data].
    {"model.name", "--model", "", "the network to train", At<&Job::model>(), kAny,
     OneOf(Model::Names(), kNetworkFileSuffix)},
    {"model.network", "", "",
     "text of the network file that model.name names; empty: read from that file "
     "(docs/networks.md)",
     At<&Job::network>()},
    {"model.hidden", "", "units", "widths of the mlp's hidden layers", At<&Job::mlp_hidden>(),
     kUint32},
    {"data.name", "--dataset", "", "the data set", At<&Job::dataset>(), kAny,
     OneOf(DataSetNames())},
    {"data.path", "--data", "folder",
     "folder of the data set's files; empty: data/NAME or ../shared/data/NAME",
     At<&Job::data_path>()},
    {"data.columns", "", "",
     "columns of a table to learn from, by name; none: u, g, r, i, z and redshift of sdss",
     At<&Job::columns>()},
    {"data.augment", "--augment", "",
     "random augmentation: crop (a shift by up to an eighth of the side; a resized part of a "
     "photograph), flip (left to right); empty: none",
     At<&Job::augment>(), kAny, OneOf({"crop", "flip"})},
    {"data.resize", "--resize", "pixels", "new side of pictures; 0: unchanged, photographs 224",
     At<&Job::resize>(), kSide},
    {"data.limit", "--limit", "samples", "training samples, a subset drawn from the seed; 0: all",
     At<&Job::train_limit>(), kSteps},
    {"data.test_limit", "", "samples", "test samples, a subset drawn from the seed; 0: all",
     At<&Job::test_limit>(), kSteps},
    {"data.skip", "", "file",
     "skip list of an imagefolder: pictures to leave out, as `pando data check` writes it; a "
     "relative path starts at the data folder",
     At<&Job::skip_list>()},
    {"data.synthetic_train_samples", "", "samples", "training samples of synthetic data sets",
     At<&Job::synthetic_train_samples>(), kUint32},
    {"data.synthetic_test_samples", "", "samples", "test samples of synthetic data sets",
     At<&Job::synthetic_test_samples>(), kUint32},
    // [train].
    {"train.steps", "--steps", "steps", "length of the run in steps; 0: by train.epochs",
     At<&Job::steps>(), kSteps},
    {"train.epochs", "--epochs", "epochs",
     "length of the run in epochs, rounded up to a step; 0: by train.steps", At<&Job::epochs>(),
     kEpochs},
    {"train.global_batch", "--global-batch", "samples", "samples of one step, over all workers",
     At<&Job::global_batch>(), kUint32},
    {"train.micro_batches", "--micro-batches", "per step",
     "parts of a step that workers compute; they fix the result for any number of workers",
     At<&Job::micro_batches>(), kMicroBatches},
    {"train.last_batch", "", "", "the last batch of an epoch, if the data do not fill it",
     At<&Job::last_batch>()},
    {"train.seed", "--seed", "", "seed of weights, shuffling, dropout, synthetic data",
     At<&Job::seed>()},
    {"train.label_smoothing", "--label-smoothing", "",
     "share of a label that is spread over all classes, in training", At<&Job::label_smoothing>(),
     kBelowOne},
    {"train.activation_checkpointing", "--activation-checkpointing", "",
     "drop most activations and recompute them in backward: less memory, more time, the same "
     "result",
     At<&Job::activation_checkpointing>()},
    {"train.precision", "--precision", "",
     "activations on GPUs; parameters and sums of gradients are always floats. CPUs compute in "
     "floats and do not join bf16 and fp16",
     At<&Job::precision>()},
    {"train.allow_nondeterministic", "--allow-nondeterministic", "",
     "allow faster GPU algorithms whose bits differ from run to run",
     At<&Job::allow_nondeterministic>()},
    {"train.codec", "--codec", "",
     "encoding of gradients on their way to servers, which sum floats: fp16, bf16 and int8 (one "
     "scale per 256 values) are shorter and less exact. 1-bit and top-k send little and add the "
     "error to the next gradient, so a fault changes the weights. With a codec each micro-batch "
     "travels separately",
     At<&Job::push_codec>()},
    {"train.top_k_share", "", "", "top-k: share of a gradient's values that is sent",
     At<&Job::top_k_share>(), kShare},
    {"train.pull_codec", "--pull-codec", "",
     "encoding of parameters on their way to workers, which compute with what arrives; servers "
     "keep floats",
     At<&Job::pull_codec>(), kAny, FirstChoices(kPullCodecs)},
    // [fp16].
    {"fp16.loss_scale", "", "",
     "factor of the loss; 0: dynamic, by the next keys. Steps with an overflow are skipped",
     At<&Job::optimizer, &O::loss_scale, &L::loss_scale>(), kLossScale},
    {"fp16.initial_scale_power", "", "", "the first dynamic factor is 2 to this power",
     At<&Job::optimizer, &O::loss_scale, &L::initial_scale_power>(), kScalePower},
    {"fp16.loss_scale_window", "", "steps", "steps without an overflow before it doubles",
     At<&Job::optimizer, &O::loss_scale, &L::loss_scale_window>(), kScaleWindow},
    {"fp16.hysteresis", "", "steps", "steps with an overflow before it halves",
     At<&Job::optimizer, &O::loss_scale, &L::hysteresis>(), kScaleWindow},
    {"fp16.min_loss_scale", "", "", "an overflow at this factor ends the run",
     At<&Job::optimizer, &O::loss_scale, &L::min_loss_scale>(), kPositive},
    // [optimizer].
    {"optimizer.type", "--optimizer", "",
     "the optimizer; PyTorch's formulas, LARS and LAMB as published",
     At<&Job::optimizer, &O::kind>()},
    {"optimizer.lr", "--lr", "", "learning rate; the highest of a schedule",
     At<&Job::optimizer, &O::lr>(), kPositive},
    {"optimizer.momentum", "--momentum", "", "momentum of sgd and lars",
     At<&Job::optimizer, &O::momentum>(), kBelowOne},
    {"optimizer.dampening", "", "", "sgd: dampening of the momentum",
     At<&Job::optimizer, &O::dampening>(), kUnit},
    {"optimizer.nesterov", "", "", "sgd: Nesterov's momentum", At<&Job::optimizer, &O::nesterov>()},
    {"optimizer.beta1", "", "", "adam, adamw, lamb: decay of the mean",
     At<&Job::optimizer, &O::beta1>(), kBelowOne},
    {"optimizer.beta2", "", "", "adam, adamw, lamb: decay of the square",
     At<&Job::optimizer, &O::beta2>(), kBelowOne},
    {"optimizer.eps", "", "", "adam, adamw, lamb: added to the root",
     At<&Job::optimizer, &O::eps>(), kPositive},
    {"optimizer.weight_decay", "--weight-decay", "",
     "share of the weights added to the gradient; adamw: subtracted from the weights; lamb: added "
     "to the direction",
     At<&Job::optimizer, &O::weight_decay>()},
    {"optimizer.weight_decay_exclude_bias_and_norm", "", "",
     "no decay of one-dimensional tensors (biases, weights of norms); always on for lars and lamb",
     At<&Job::optimizer, &O::weight_decay_exclude_bias_and_norm>()},
    {"optimizer.clip_value", "", "", "bound of each element of the gradient, before decay; 0: none",
     At<&Job::optimizer, &O::clip_value>()},
    {"optimizer.clip_norm", "--clip-norm", "",
     "bound of the norm of the whole gradient, before decay; 0: none",
     At<&Job::optimizer, &O::clip_norm>()},
    {"optimizer.trust_coefficient", "", "",
     "lars: a layer's rate is lr · this · norm of its weights / norm of its gradient and decay",
     At<&Job::optimizer, &O::trust_coefficient>(), kPositive},
    {"optimizer.trust_ratio_max", "", "",
     "lamb: bound of norm of a layer's weights / norm of its update; DeepSpeed's max_coeff",
     At<&Job::optimizer, &O::trust_ratio_max>(), kPositive},
    {"optimizer.ema_decay", "--ema-decay", "",
     "share that the average of the weights keeps at each step, for example 0.999; pando export "
     "--ema writes the average; 0: none",
     At<&Job::optimizer, &O::ema_decay>(), kBelowOne},
    // [schedule].
    {"schedule.type", "--schedule", "", "the learning rate over the run",
     At<&Job::schedule, &S::kind>()},
    {"schedule.warmup_steps", "", "steps", "linear rise before any type",
     At<&Job::schedule, &S::warmup_steps>()},
    {"schedule.step_size", "", "steps", "step: steps between decays",
     At<&Job::schedule, &S::step_size>()},
    {"schedule.milestones", "", "steps", "multi-step: steps of the decays, after warm-up",
     At<&Job::schedule, &S::milestones>(), kSteps},
    {"schedule.gamma", "", "", "step, multi-step: factor of each decay; exponential: of a step",
     At<&Job::schedule, &S::gamma>(), kPositive},
    {"schedule.start_factor", "", "", "linear: rate at the start = lr · this",
     At<&Job::schedule, &S::start_factor>(), kUnit},
    {"schedule.end_factor", "", "", "linear: rate at the end = lr · this",
     At<&Job::schedule, &S::end_factor>(), kUnit},
    {"schedule.total_iters", "", "steps",
     "linear, polynomial: steps from start to end; 0: all after warm-up",
     At<&Job::schedule, &S::total_iters>(), kSteps},
    {"schedule.power", "", "", "polynomial: rate = lr · (share of steps left)^this",
     At<&Job::schedule, &S::power>()},
    {"schedule.min_lr", "", "", "cosine: rate at the end", At<&Job::schedule, &S::min_lr>()},
    {"schedule.pct_start", "", "", "one-cycle: share of the run with a rising rate",
     At<&Job::schedule, &S::pct_start>(), kOpenUnit},
    {"schedule.div_factor", "", "", "one-cycle: rate at the start = lr / this",
     At<&Job::schedule, &S::div_factor>(), kAtLeastOne},
    {"schedule.final_div_factor", "", "", "one-cycle: rate at the end = rate at the start / this",
     At<&Job::schedule, &S::final_div_factor>(), kAtLeastOne},
    {"schedule.cycle_momentum", "", "",
     "one-cycle: momentum (adam: beta1) moves inversely to the rate",
     At<&Job::schedule, &S::cycle_momentum>()},
    {"schedule.base_momentum", "", "", "one-cycle: lowest momentum",
     At<&Job::schedule, &S::base_momentum>(), kBelowOne},
    {"schedule.max_momentum", "", "", "one-cycle: highest momentum",
     At<&Job::schedule, &S::max_momentum>(), kBelowOne},
    // [eval].
    {"eval.every_epochs", "--eval-every-epochs", "epochs",
     "epochs between evaluations on the test set; 0: by eval.every_steps, or only at the end",
     At<&Job::eval_every_epochs>(), kEpochs},
    {"eval.every_steps", "--eval-every-steps", "steps",
     "steps between evaluations on the test set; 0: by eval.every_epochs",
     At<&Job::eval_every_steps>(), kSteps},
    {"eval.early_stop_patience", "--early-stop-patience", "evaluations",
     "stop after this many evaluations in a row without improvement of the test accuracy; 0: never",
     At<&Job::early_stop_patience>(), kPatience},
    {"eval.early_stop_min_delta", "--early-stop-min-delta", "",
     "smallest improvement of the test accuracy that counts", At<&Job::early_stop_min_delta>(),
     kBelowOne},
    // [worker], [snapshot], [verify] and [run]: nothing there changes the result.
    {"worker.parameter_residency", "", "",
     "parameters in a worker: all, or one layer at a time, pulled before use and dropped after it: "
     "less memory, more traffic, the same result",
     At<&Job::parameter_residency>()},
    {"snapshot.every", "--snapshot-every", "steps",
     "steps between snapshots of the job; 0: only at its end", At<&Job::snapshot_every>(), kSteps},
    {"snapshot.keep", "", "snapshots", "number of newest complete snapshots to keep",
     At<&Job::snapshot_keep>(), kSnapshots},
    {"snapshot.best", "--snapshot-best", "",
     "also store evaluated versions, and keep the one with the best test accuracy",
     At<&Job::snapshot_best>()},
    {"verify.every", "--verify-every", "micro-batches",
     "two workers compute one of this many micro-batches, and the results are compared; 0: none",
     At<&Job::verify_every>(), kSteps},
    // Of [run]: the processes, and what they compute and speak with.
    {"run.strategy", "--strategy", "",
     "what makes the next version: parameter servers, the workers by allreduce, or one process "
     "(--serial)",
     At<&Job::strategy>()},
    {"run.allreduce", "", "",
     "algorithm of --strategy allreduce; auto: NCCL if each worker has its own GPU, else gloo, by "
     "ring if a step's gradients have 2 MiB or more",
     At<&Job::allreduce>()},
    {"run.workers", "--workers", "processes", "worker processes: they compute gradients",
     At<&Job::workers>(), kThreads},
    {"run.servers", "--servers", "processes", "server processes: they hold the parameters",
     At<&Job::servers>(), kThreads},
    {"run.replicas", "--replicas", "servers",
     "servers that hold each shard; with 2, a server's death loses nothing", At<&Job::replicas>(),
     kReplicas},
    {"run.device", "--device", "",
     "where workers compute: auto (one GPU per worker, if there are any), cpu, cuda, or cuda:N for "
     "one GPU",
     At<&Job::device>()},
    {"run.threads", "--threads", "per worker", "computing threads of each worker; one on a GPU",
     At<&Job::threads>(), kThreads},
    {"run.reader_threads", "--reader-threads", "per worker",
     "threads of each worker that read and decode samples ahead", At<&Job::reader_threads>(),
     kThreads},
    {"run.data_cache", "--data-cache", "folder",
     "where workers keep decoded and resized photographs, at most 256 GiB per split; empty: "
     "nowhere",
     At<&Job::data_cache>()},
    {"run.lanes", "", "per server", "serving threads of each server; 0: by cores",
     At<&Job::lanes>(), kLanes},
    {"run.transport", "--transport", "",
     "transport of gradients and parameters: shm (memory that processes of one host share), auto "
     "(shm if possible), tcp, or ipc (Unix sockets between the processes of pando train)",
     At<&Job::transport>(), kAny, OneOf({"auto", "tcp", "ipc", "shm"})},
    {"run.host_sum", "--host-sum", "",
     "sum the gradients of one host's workers on the host, so that one copy leaves it: auto (for "
     "shards whose server is on another host), always, never",
     At<&Job::host_sum>()},
    // Of [run]: what the run leaves, and its timers.
    {"run.name", "", "", "the run's name; empty: MODEL-DATA-TIME", At<&Job::name>()},
    {"run.dir", "--run-dir", "folder", "the run's folder; empty: runs/NAME", At<&Job::run_dir>()},
    {"run.log_every", "", "steps", "steps between rows of metrics.csv", At<&Job::log_every_steps>(),
     kAtLeastOne},
    {"run.timeline", "--timeline", "file",
     "trace of all processes to write, for Perfetto or chrome://tracing; empty: none",
     At<&Job::timeline>(), kAny, Alias("--timeline-filename")},  // Horovod's
    {"run.timeline_steps", "--timeline-steps", "steps",
     "steps to record: A:B is A to B - 1; empty: all, until a process has written 256 MiB",
     At<&Job::timeline_steps>()},
    {"run.heartbeat_ms", "", "ms", "time between heartbeats of a process", At<&Job::heartbeat_ms>(),
     kMilliseconds},
    {"run.lease_ms", "", "ms", "silence after which a process is declared dead",
     At<&Job::lease_ms>(), kMilliseconds},
    {"run.start_timeout_ms", "", "ms", "time to wait for all processes at the start",
     At<&Job::start_timeout_ms>(), kMilliseconds},
    {"run.scheduler_timeout_ms", "", "ms",
     "silence of the scheduler after which servers and workers leave",
     At<&Job::scheduler_timeout_ms>(), kMilliseconds}};

std::vector<JobKey> MakeKeys() {
  std::vector<JobKey> keys;
  for (const KeyRow& row : kRows) keys.push_back(KeyFor(row));
  return keys;
}

}  // namespace

const std::vector<JobKey>& JobKeys() {
  static const std::vector<JobKey> keys = MakeKeys();
  return keys;
}

const JobKey* FindJobKey(std::string_view name) {
  for (const JobKey& key : JobKeys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string SuggestJobKey(std::string_view wrong) {
  std::vector<std::string> names;
  for (const JobKey& key : JobKeys()) {
    // A right key in no section or another one is the likeliest slip.
    if (wrong.substr(wrong.rfind('.') + 1) == key.leaf())
      return fmt::format("did you mean '{}'?", key.name);
    names.push_back(key.name);
  }
  return DidYouMean(wrong, names);
}

}  // namespace pando
