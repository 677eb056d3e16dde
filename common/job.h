// Job: one training run as its job file says it (docs/job-file.md), resolved: every default filled
// in. cli/job_file reads and writes it; everybody else is handed it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/step_plan.h"

namespace pando {

enum class OptimizerKind : uint8_t { kSgd, kAdam, kAdamW };
enum class ScheduleKind : uint8_t { kConstant, kStep, kCosine, kOneCycle };

// [optimizer]. Formulas and defaults are PyTorch's.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double lr = 0.01;
  double momentum = 0.0;  // SGD; with nesterov, Nesterov's
  double dampening = 0.0;
  bool nesterov = false;
  double beta1 = 0.9;  // Adam, AdamW
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;  // coupled (L2) in SGD and Adam, decoupled in AdamW
};

// [schedule]. The learning rate of each step, computed by the scheduler alone (P36).
struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kConstant;
  uint64_t warmup_steps = 0;      // linear, before any of the kinds
  uint64_t step_size = 0;         // kStep: steps between decays
  double gamma = 0.1;             // kStep: factor of each decay
  double min_lr = 0.0;            // kCosine: rate at the end
  double pct_start = 0.3;         // kOneCycle: share of the run that rises
  double div_factor = 25.0;       // kOneCycle: start = lr / div_factor
  double final_div_factor = 1e4;  // kOneCycle: end = start / final_div_factor
  bool cycle_momentum = true;     // kOneCycle: momentum (beta1) runs the other way
  double base_momentum = 0.85;
  double max_momentum = 0.95;
};

struct Job {
  // [model]
  std::string model = "mnist-cnn";
  std::vector<uint64_t> mlp_hidden = {128};  // model.hidden: layer widths of "mlp"
  // [data]
  std::string dataset = "mnist";
  std::string data_path;  // folder; empty where the data set has none
  uint64_t synthetic_train_samples = 60000;
  uint64_t synthetic_test_samples = 10000;
  // [train]
  uint64_t steps = 0;  // 0: by epochs
  double epochs = 1.0;
  uint64_t global_batch = 128;
  uint32_t micro_batches = 8;
  LastBatch last_batch = LastBatch::kShort;
  uint64_t seed = 1;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  // [eval]
  uint64_t eval_every_epochs = 1;  // 0: only at the end
  // [snapshot], [verify] and [run]: not part of the job's identity; nothing here changes the result
  uint64_t snapshot_every = 500;  // steps; 0: only the job's end
  uint32_t snapshot_keep = 2;     // complete ones
  uint64_t verify_every = 0;      // P41: one micro-batch in so many is computed twice; 0: none
  uint32_t workers = 2;
  uint32_t servers = 2;
  uint32_t replicas = 2;  // of each shard, 1 or 2; one where there is one server
  uint32_t threads = 1;           // computing threads per worker
  uint32_t lanes = 0;             // per server; 0: by cores
  std::string transport = "tcp";  // for processes that `pando train` starts: tcp or ipc
  std::string name;               // of the run folder; empty: model-dataset-time
  std::string run_dir;            // empty: runs/NAME
  uint64_t log_every_steps = 1;   // rows of metrics.csv
  uint32_t heartbeat_ms = 250;
  uint32_t lease_ms = 1000;  // silence after which a process counts as dead
  uint32_t start_timeout_ms = 60000;
  uint32_t scheduler_timeout_ms = 600000;  // silence of the scheduler after which a node leaves
};

}  // namespace pando
