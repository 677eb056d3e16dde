// Job is one training run as in its job file (docs/job-file.md), with every default filled in.
// job/job_file reads and writes it; all other code only reads it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/text.h"
#include "plan/step_plan.h"

namespace pando {

enum class OptimizerKind : uint8_t {
  kSgd,
  kAdam,
  kAdamW,
  kLars,
  kLamb,
  kRmsprop,
  kAdagrad,
  kAdadelta,
  kNadam,
};
template <>
inline constexpr auto kEnumNames<OptimizerKind> = std::to_array({"sgd", "adam", "adamw", "lars",
                                                                 "lamb", "rmsprop", "adagrad",
                                                                 "adadelta", "nadam"});
enum class ScheduleKind : uint8_t {
  kConstant,
  kStep,
  kCosine,
  kOneCycle,
  kMultiStep,
  kExponential,
  kLinear,
  kPolynomial,
  kTable,
};
template <>
inline constexpr auto kEnumNames<ScheduleKind> = std::to_array({"constant", "step", "cosine",
                                                                "one-cycle", "multi-step",
                                                                "exponential", "linear",
                                                                "polynomial", "table"});

// [fp16]. Keys, defaults and rules are DeepSpeed's.
struct LossScaleOptions {
  bool is_on = false;  // train.precision is fp16: a step is skipped if its gradient is not finite
  double loss_scale = 0.0;            // fixed; 0: dynamic
  uint32_t initial_scale_power = 16;  // the first scale is 2 to this power
  uint32_t loss_scale_window = 1000;  // steps without an overflow after which it doubles
  uint32_t hysteresis = 2;            // overflows until it is halved
  double min_loss_scale = 1.0;
};

// [optimizer]. Formulas and defaults are PyTorch's. LARS is from You et al. 2017, LAMB from You et
// al. 2020, without decay and trust ratio for tensors of one dimension (biases and norms).
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double lr = 0.01;
  double momentum = 0.0;  // SGD, LARS, RMSprop
  double dampening = 0.0;
  bool nesterov = false;
  double beta1 = 0.9;  // Adam, AdamW, LAMB, NAdam
  double beta2 = 0.999;
  double eps = 1e-8;
  double alpha = 0.99;  // RMSprop: the beta2 of its square
  bool centered = false;
  double rho = 0.9;       // Adadelta: the beta2 of both its squares
  double lr_decay = 0.0;  // Adagrad
  double initial_accumulator_value = 0.0;
  double momentum_decay = 4e-3;                     // NAdam
  double weight_decay = 0.0;                        // coupled (L2), except in AdamW and LAMB
  bool decoupled_weight_decay = false;              // NAdam: as AdamW
  bool weight_decay_exclude_bias_and_norm = false;  // the tensors of one dimension
  double weight_clip =
      0.0;  // each weight stays within ± this, as in Wasserstein GANs; 0: any value
  double clip_value = 0.0;           // each element of the mean gradient, before decay; 0: none
  double clip_norm = 0.0;            // norm of the whole mean gradient, before decay; 0: none (P14)
  double trust_coefficient = 0.001;  // LARS: η
  double trust_ratio_max = 10.0;     // LAMB: per layer, as DeepSpeed's max_coeff
  double ema_decay = 0.0;            // the servers' average of the weights; 0: there is none
  LossScaleOptions loss_scale;
  // train.weighted: a program weighs its micro-batches, and the gradient's mean is over the weights
  // (P14), not over samples.
  bool is_weighted = false;
  // Groups of an external model's parameters that train in turns (plan/optimizer_turns.h).
  std::vector<std::string> groups = {};
  std::vector<uint64_t> turns = {};
};

// P14. Returns whether updates need factors from values over several shards.
inline bool HasPartials(const OptimizerOptions& o) {
  return o.clip_norm > 0.0 || o.kind == OptimizerKind::kLars || o.kind == OptimizerKind::kLamb ||
         o.loss_scale.is_on || o.is_weighted;
}

// [schedule]. The learning rate of each step, which only the scheduler computes (P36).
struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kConstant;
  uint64_t warmup_steps = 0;              // linear, before the kind begins
  uint64_t step_size = 0;                 // kStep: steps between decays
  std::vector<uint64_t> milestones = {};  // kMultiStep: steps of the decays
  double gamma = 0.1;             // kStep, kMultiStep: factor of each decay; kExponential: per step
  double start_factor = 1.0;      // kLinear: factor of the rate at first
  double end_factor = 0.0;        // kLinear: factor at the end
  uint64_t total_iters = 0;       // kLinear, kPolynomial: steps until the end; 0: the whole job
  double power = 1.0;             // kPolynomial
  double min_lr = 0.0;            // kCosine: rate at the end
  double pct_start = 0.3;         // kOneCycle: share of the run with a rising rate
  double div_factor = 25.0;       // kOneCycle: start = lr / div_factor
  double final_div_factor = 1e4;  // kOneCycle: end = start / final_div_factor
  bool cycle_momentum = true;     // kOneCycle: momentum (beta1) moves in the opposite direction
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  std::vector<std::string> rates = {};  // kTable: of each step (plan/rate_table.h)
};

// The format in which GPUs compute activations and their gradients. Parameters and sums of
// gradients are floats everywhere. A CPU computes only in floats.
enum class Precision : uint8_t {
  kFp32,
  kTf32,  // floats, with products of 10 bits of mantissa on tensor cores
  kBf16,
  kFp16,
};
template <>
inline constexpr auto kEnumNames<Precision> = std::to_array({"fp32", "tf32", "bf16", "fp16"});

// The form in which payloads travel (plan/shard_codec.h): as floats, or in fewer bits.
enum class PayloadCodec : uint8_t { kFp32, kFp16, kBf16, kInt8, kOneBit, kTopK };
template <>
inline constexpr auto kEnumNames<PayloadCodec> = std::to_array({"fp32", "fp16", "bf16", "int8",
                                                                "1-bit", "top-k"});

// Whether an error of the encoding is added to a later gradient (train/error_feedback.h).
constexpr bool HasFeedback(PayloadCodec codec) {
  return codec == PayloadCodec::kOneBit || codec == PayloadCodec::kTopK;
}

// The parameters of a version that a worker holds.
enum class ParameterResidency : uint8_t {
  kAll,    // all of it
  kLayer,  // per computing thread the current layer and the next one: ZeRO stage 3
};
template <>
inline constexpr auto kEnumNames<ParameterResidency> = std::to_array({"all", "layer"});

// The way in which gradients become the next version. It is not part of the job's identity: with
// two workers that compute an aligned half each, the bits are equal.
enum class Strategy : uint8_t {
  kParameterServers,
  kAllreduce,  // workers sum among themselves and update their copies; no servers
  kSingle,     // one process: --serial
};
template <>
inline constexpr auto kEnumNames<Strategy> = std::to_array({"ps", "allreduce", "single"});

// gloo's algorithms for sums over ranks.
enum class AllreduceAlgorithm : uint8_t { kAuto, kRing, kHalvingDoubling };
template <>
inline constexpr auto kEnumNames<AllreduceAlgorithm> = std::to_array({"auto", "ring",
                                                                      "halving-doubling"});

// Whether the workers of one place sum their gradients before these leave it (P6a).
enum class SumUse : uint8_t {
  kAuto,    // hosts: shards whose primary is on another host; racks: with many hosts
  kAlways,  // hosts: all shards; racks: with any number of hosts
  kOff,
};
inline constexpr uint32_t kHostsWithoutRackSums =
    128;  // kAuto sums in racks on more, of one worker each
template <>
inline constexpr auto kEnumNames<SumUse> = std::to_array({"auto", "always", "never"});

// eval.report: whether the program's function gets each evaluation (P31a).
enum class ReportUse : uint8_t {
  kNone,
  kBeside,   // steps go on meanwhile
  kDecides,  // its answer may end the run, so they wait for it (P32)
};
template <>
inline constexpr auto kEnumNames<ReportUse> = std::to_array({"none", "beside", "decides"});

// data.missing: the way in which a table's missing values become inputs.
enum class MissingValues : uint8_t { kError, kMean, kCategory };
template <>
inline constexpr auto kEnumNames<MissingValues> = std::to_array({"error", "mean", "category"});

// model.name and data.name in a job whose gradients a user's program computes (P43). The program
// also has the data; Pando knows only model.tensors and the sample counts of data.synthetic_*.
inline constexpr const char* kExternalName = "external";

struct Job {
  // [model]
  std::string model = "mnist-cnn";           // or the path of a network in TOML, with this text:
  std::string network;                       // model.network
  std::vector<uint64_t> mlp_hidden = {128};  // model.hidden: layer widths of "mlp"
  std::string init;                          // file of the first version; empty: from the seed
  bool init_partial = false;                 // tensors that do not fit come from the seed
  std::string init_hash;                     // hash of the first version, once the file was read
  std::vector<std::string> tensors;          // an external model's (plan/external_model.h)
  std::vector<std::string> constants;        // its tensors that no step changes: "NAME HASH"
  std::string program;                       // its name in the program, for people
  // [data]
  std::string dataset = "mnist";
  std::string data_path;             // folder; empty if the data set has none
  std::vector<std::string> columns;  // a table's; none: the data set's own choice
  std::string label;                 // data.label: column of a table's classes
  double test_share = 0.2;           // share of a table's rows, if no file has the test rows
  double validation_share = 0;       // data.validation: share of the training samples; 0: none
  MissingValues missing = MissingValues::kError;  // in a table
  std::vector<std::string> augment;               // "crop", "flip": drawn again in every epoch
  uint32_t resize = 0;                            // side of the pictures; 0: unchanged
  uint64_t train_limit = 0;                       // data.limit: samples of a seeded subset; 0: all
  uint64_t test_limit = 0;
  std::string skip_list;  // data.skip: a file that names pictures to leave out
  uint64_t synthetic_train_samples = 60000;
  uint64_t synthetic_test_samples = 10000;
  // [train]
  uint64_t steps = 0;  // 0: by epochs
  double epochs = 1.0;
  uint64_t global_batch = 128;
  uint32_t micro_batches = 8;
  uint32_t local_steps = 1;  // of each micro-batch; above 1 it is a round (train/local_round.h)
  std::string inner = "type=adamw lr=0.001";  // the optimizer that makes local steps
  uint32_t staleness = 0;  // step t reads version max(0, t − staleness); at most kStalenessMax
  LastBatch last_batch = LastBatch::kShort;
  uint64_t seed = 1;
  double label_smoothing = 0.0;  // as PyTorch's CrossEntropyLoss; only in the training loss
  bool activation_checkpointing = false;  // changes no bit: less memory, more time
  Precision precision = Precision::kFp32;
  bool allow_nondeterministic = false;            // GPUs may use algorithms without equal bits
  PayloadCodec push_codec = PayloadCodec::kFp32;  // P34: for gradients
  double top_k_share = 0.01;                      // share of a gradient's values that top-k sends
  PayloadCodec pull_codec = PayloadCodec::kFp32;  // for the parameters that workers compute with
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  std::vector<std::string> train_logs;  // an external model's: names of further means of each step
  // [eval]
  uint64_t eval_every_epochs = 1;      // 0: by steps, or only at the end
  uint64_t eval_every_steps = 0;       // 0: by epochs; at most one of the two is above 0
  uint32_t early_stop_patience = 0;    // stop after N evaluations without improvement; 0: never
  double early_stop_min_delta = 0.0;   // an improvement is larger than this share
  std::string eval_metric;             // the sum that scores a version; empty: correct, or loss_sum
  std::string eval_mode = "auto";      // the best score is max, min, or auto: min for a loss
  std::vector<std::string> eval_sums;  // an external model's: names of an evaluation's sums
  bool eval_whole = false;             // one worker evaluates the whole test set
  ReportUse eval_report = ReportUse::kNone;
  // [worker], [snapshot], [verify], [run]: not in the job's identity, as they do not change the
  // result
  ParameterResidency parameter_residency = ParameterResidency::kAll;
  uint64_t snapshot_every = 500;             // steps; 0: only the job's end
  uint32_t snapshot_keep = 2;                // complete ones
  bool snapshot_best = false;                // evaluated versions are stored, and the best is kept
  std::string snapshot_store = "scheduler";  // or "folder": a folder that servers share (P45)
  uint64_t verify_every = 0;                 // P41: one micro-batch in N is computed twice; 0: none
  Strategy strategy = Strategy::kParameterServers;
  AllreduceAlgorithm allreduce = AllreduceAlgorithm::kAuto;
  uint32_t workers = 2;
  uint32_t servers = 2;            // with allreduce 1: rank 0's process
  uint32_t servers_max = 0;        // for which shards are small enough; 0: ServersMax's default
  uint32_t replicas = 2;           // of each shard, 1 to 3; at most one per server
  std::string device = "auto";     // the workers': auto, cpu, cuda or cuda:N
  uint32_t threads = 1;            // computing threads per worker; one on a GPU
  uint32_t reader_threads = 1;     // per worker; they read and decode samples ahead
  std::string data_cache;          // folder for decoded and resized pictures; empty: none
  uint32_t lanes = 0;              // per server; 0: by cores
  std::string transport = "auto";  // for payloads: auto, tcp, ipc or shm
  std::string encrypt = "all";     // with keys: all, control or none (P44)
  SumUse host_sum = SumUse::kAuto;
  SumUse rack_sum = SumUse::kAuto;
  std::string name;                  // the run folder's; empty: model-dataset-time
  std::string run_dir;               // empty: runs/NAME
  std::vector<std::string> command;  // run.command: the program of an external model's workers
  std::vector<std::string> earlier;  // run.earlier: folders of the program's completed runs
  bool preload = false;              // its workers are forked from one process
  uint64_t log_every_steps = 1;      // rows of metrics.csv
  std::string timeline;              // trace file of all processes' work; empty: none
  std::string timeline_steps;        // "A:B": only of these steps; empty: of all
  uint32_t heartbeat_ms = 250;
  uint32_t lease_ms = 1000;  // silence after which a process is declared dead
  uint32_t start_timeout_ms = 60000;
  uint32_t scheduler_timeout_ms = 600000;  // silence of the scheduler after which a node leaves

  // Returns how many heartbeats of a member get one answer: about one answer a second, at most four
  // heartbeats for one, and four answers within scheduler_timeout_ms.
  uint32_t heartbeats_per_ack() const {
    const uint32_t ack_ms = std::min(1000u, scheduler_timeout_ms / 4);
    return std::clamp(ack_ms / std::max(heartbeat_ms, 1u), 1u, 4u);
  }
  // Whether an evaluation may end the run (P32).
  bool may_stop_early() const {
    return early_stop_patience > 0 || eval_report == ReportUse::kDecides;
  }
  // Returns the name of the samples on which a run is evaluated, for people.
  const char* evaluated_on() const { return validation_share > 0 ? "validation" : "test"; }
};

// Returns whether a sum of an evaluation is one of losses, by its name.
inline bool IsLoss(const std::string& sum) { return sum.find("loss") != std::string::npos; }

}  // namespace pando
