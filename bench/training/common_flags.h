// The flags that the benchmarks of training have in common. Used by their commands.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "bench/training/throughput.h"

namespace pando::bench {

inline constexpr uint32_t kWorkersMax = 64;
inline constexpr uint32_t kTrainingRoundsMax = 10'000;

const std::vector<std::string>& TransportNames();

struct TrainingFlags {
  std::vector<std::string> models;
  uint32_t worker_batch = 0;  // 0: the model's
  std::string data;           // a folder of data sets
  std::string program;        // empty: found
  uint32_t rounds = 3;
};
void AddTrainingFlags(CLI::App& command, TrainingFlags* flags);
// The program, and each model with its data.
Status ResolveTraining(const TrainingFlags& flags, std::string* program,
                       std::vector<Workload>* workloads);
// With --quick: one model and one short sample, but for what was asked for by a flag.
void MakeTrainingQuick(const CLI::App& command, TrainingFlags* flags, Window* window);
void AddWindowFlags(CLI::App& command, Window* window);
void AddTransportFlag(CLI::App& command, std::vector<std::string>* transports);
void AddStrategyFlag(CLI::App& command, std::vector<std::string>* strategies);

}  // namespace pando::bench
