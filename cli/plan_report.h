// The input of `pando plan`: the work of a step, from a model's graph or a parameter count, and the
// speed of a network as people write it ("25Gbit", "100Mbit/s", "3GB/s"). Also its output: the
// prediction, as text and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "models/graph.h"
#include "plan/goodput.h"
#include "plan/role_memory.h"
#include "plan/shard_plan.h"
#include "plan/step_time.h"

namespace pando {

// The most parameters of a plan, because the transfers of a step's shards are simulated.
inline constexpr uint64_t kPlanParametersMax = 4'000'000'000;

// Makes the work of a graph's layers; compute_ms is divided among them by their FLOPs. Shards are
// those of a job with this `run.servers_max` (P5).
StepWork MakeWork(const Graph& graph, double compute_ms,
                  uint32_t servers_max = ShardPlan::kFewServers);

// Makes the work of a model of which only the size is known: parameters and FLOPs are spread
// evenly, and backward takes twice as long as forward.
StepWork MakeWork(uint64_t parameter_count, double compute_ms,
                  uint32_t servers_max = ShardPlan::kFewServers);

// Parses a positive number of bytes per second. k, M, G and T are powers of 1000, and m, g, t are
// the same (tc writes mbit); bits are "bit", "bit/s" or "bps", bytes "B" or "B/s". kInvalidArgument
// names the flag, the text and what was expected.
Result<double> ParseBandwidth(const std::string& flag, const std::string& text);

// Returns for example "25 Gbit/s".
std::string BandwidthText(double bytes_per_second);

// A further server that saves a smaller share of a step than this is not worth its machine.
inline constexpr double kLeastGain = 0.02;

struct PlanInput {
  std::string model;  // or "a model"
  uint64_t parameter_count = 0;
  StepWork work;
  Cluster cluster;                                // servers 0: as many as are worth their machines
  BucketLimits buckets;                           // those of allreduce
  uint64_t batch = 0;                             // samples of a worker's step; 0: unknown
  uint32_t servers_max = ShardPlan::kFewServers;  // the job's run.servers_max, for its shards
  std::optional<Failures> failures = {};
};

struct Prediction {
  std::string key;   // "ps-own-hosts", "ps-worker-hosts", "allreduce", "allreduce-halving-doubling"
  std::string name;  // for people
  uint32_t servers = 0;
  uint32_t host_count = 0;
  StepTime time;
  double goodput = 1;  // the share of time that failures leave
};

struct Plan {
  PlanInput input;
  ServerChoice choice;
  // Servers on separate hosts, servers on the workers' hosts, and both kinds of allreduce.
  std::vector<Prediction> predictions;
  std::vector<MemoryBound> memory;  // empty if not requested
};

Plan MakePlan(PlanInput input);
std::string PlanText(const Plan& plan);
std::string PlanJson(const Plan& plan);

}  // namespace pando
