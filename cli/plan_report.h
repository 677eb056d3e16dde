// What `pando plan` predicts, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/step_time.h"

namespace pando {

// A further server that saves less of a step than this is not worth its machine.
inline constexpr double kLeastGain = 0.02;

struct PlanInput {
  std::string model;  // or "a model"
  uint64_t parameter_count = 0;
  StepWork work;
  Cluster cluster;       // servers 0: as many as are worth having
  BucketLimits buckets;  // of the ring
  uint64_t batch = 0;    // samples of a worker's step; 0: unknown
};

struct Prediction {
  std::string key;   // "ps-own-hosts", "ps-worker-hosts", "allreduce"
  std::string name;  // for people
  uint32_t servers = 0;
  uint32_t host_count = 0;
  StepTime time;
};

struct Plan {
  PlanInput input;
  ServerChoice choice;
  // Servers on separate hosts, servers on the workers' hosts, ring allreduce.
  std::vector<Prediction> predictions;
};

Plan MakePlan(PlanInput input);
std::string PlanText(const Plan& plan);
std::string PlanJson(const Plan& plan);

}  // namespace pando
