// The numbers that make_optimizer_goldens.py took from PyTorch, for the tests of optimizer and
// schedule.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/job.h"
#include "proto/messages.h"
#include "tests/golden/golden_path.h"

namespace pando {

struct OptimizerGoldens {
  struct Case {
    std::string name;
    OptimizerOptions optimizer;
    ScheduleOptions schedule;
    std::vector<StepScalars> scalars;            // [step_count]
    std::vector<std::vector<float>> parameters;  // [checkpoint][size]
  };
  uint64_t step_count = 0;
  size_t size = 0;                    // of the parameter vector
  std::vector<uint64_t> checkpoints;  // steps after which the parameters were written down
  std::vector<Case> cases;
};

inline OptimizerOptions ReadOptimizerOptions(const nlohmann::json& j) {
  static const std::map<std::string, OptimizerKind> kKinds = {
      {"sgd", OptimizerKind::kSgd},         {"adam", OptimizerKind::kAdam},
      {"adamw", OptimizerKind::kAdamW},     {"lars", OptimizerKind::kLars},
      {"lamb", OptimizerKind::kLamb},       {"rmsprop", OptimizerKind::kRmsprop},
      {"adagrad", OptimizerKind::kAdagrad}, {"adadelta", OptimizerKind::kAdadelta},
      {"nadam", OptimizerKind::kNadam}};
  OptimizerOptions o;
  o.kind = kKinds.at(j.at("kind"));
  o.lr = j.at("lr");
  o.momentum = j.value("momentum", o.momentum);
  o.dampening = j.value("dampening", o.dampening);
  o.nesterov = j.value("nesterov", o.nesterov);
  o.beta1 = j.value("beta1", o.beta1);
  o.beta2 = j.value("beta2", o.beta2);
  o.eps = j.value("eps", o.eps);
  o.alpha = j.value("alpha", o.alpha);
  o.centered = j.value("centered", o.centered);
  o.rho = j.value("rho", o.rho);
  o.lr_decay = j.value("lr_decay", o.lr_decay);
  o.initial_accumulator_value = j.value("initial_accumulator_value", o.initial_accumulator_value);
  o.momentum_decay = j.value("momentum_decay", o.momentum_decay);
  o.weight_decay = j.value("weight_decay", o.weight_decay);
  o.decoupled_weight_decay = j.value("decoupled_weight_decay", o.decoupled_weight_decay);
  o.clip_value = j.value("clip_value", o.clip_value);
  o.clip_norm = j.value("clip_norm", o.clip_norm);
  o.trust_coefficient = j.value("trust_coefficient", o.trust_coefficient);
  return o;
}

inline ScheduleOptions ReadScheduleOptions(const nlohmann::json& j) {
  static const std::map<std::string, ScheduleKind> kKinds = {
      {"constant", ScheduleKind::kConstant},    {"step", ScheduleKind::kStep},
      {"cosine", ScheduleKind::kCosine},        {"one-cycle", ScheduleKind::kOneCycle},
      {"multi-step", ScheduleKind::kMultiStep}, {"exponential", ScheduleKind::kExponential},
      {"linear", ScheduleKind::kLinear},        {"polynomial", ScheduleKind::kPolynomial}};
  ScheduleOptions s;
  s.kind = kKinds.at(j.at("kind"));
  s.warmup_steps = j.value("warmup_steps", s.warmup_steps);
  s.step_size = j.value("step_size", s.step_size);
  s.milestones = j.value("milestones", s.milestones);
  s.gamma = j.value("gamma", s.gamma);
  s.start_factor = j.value("start_factor", s.start_factor);
  s.end_factor = j.value("end_factor", s.end_factor);
  s.total_iters = j.value("total_iters", s.total_iters);
  s.power = j.value("power", s.power);
  s.min_lr = j.value("min_lr", s.min_lr);
  s.pct_start = j.value("pct_start", s.pct_start);
  s.div_factor = j.value("div_factor", s.div_factor);
  s.final_div_factor = j.value("final_div_factor", s.final_div_factor);
  s.cycle_momentum = j.value("cycle_momentum", s.cycle_momentum);
  s.base_momentum = j.value("base_momentum", s.base_momentum);
  s.max_momentum = j.value("max_momentum", s.max_momentum);
  return s;
}

inline OptimizerGoldens ReadOptimizerGoldens() {
  const std::string path = GoldenPath("optimizer_goldens.json");
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.good(), "cannot read " << path);
  const nlohmann::json j = nlohmann::json::parse(file);
  OptimizerGoldens goldens{.step_count = j.at("step_count"),
                           .size = j.at("size"),
                           .checkpoints = j.at("checkpoints").get<std::vector<uint64_t>>(),
                           .cases = {}};
  for (const auto& [name, c] : j.at("cases").items()) {
    OptimizerGoldens::Case one{
        .name = name,
        .optimizer = ReadOptimizerOptions(c.at("optimizer")),
        .schedule = ReadScheduleOptions(c.at("schedule")),
        .scalars = {},
        .parameters = c.at("parameters").get<std::vector<std::vector<float>>>()};
    for (const auto& row : c.at("scalars")) {
      one.scalars.push_back({.lr = row[0],
                             .momentum = row[1],
                             .bias_correction1 = row[2],
                             .bias_correction2_sqrt = row[3],
                             .gradient_factor = row.size() > 4 ? row[4].get<float>() : 0.0f,
                             .mean_factor = row.size() > 4 ? row[5].get<float>() : 0.0f});
    }
    goldens.cases.push_back(std::move(one));
  }
  return goldens;
}

}  // namespace pando
