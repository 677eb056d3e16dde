// The weights for `pando export`, `evaluate` and `predict`: those of a run folder or of a file, and
// their model. A file's metadata name the model, and flags may override them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "run/run_weights.h"

namespace pando {

// Chooses one of a run's versions; by default the final one, or the newest snapshot.
struct VersionChoice {
  std::optional<uint64_t> step;
  bool is_averaged = false;
  bool is_best = false;
  // Returns the flag that chooses; null if there is none.
  const char* flag() const {
    return step ? "--step" : is_averaged ? "--ema" : is_best ? "--best" : nullptr;
  }
};
// `choice` must outlive the parsing.
void AddVersionChoice(CLI::App& command, VersionChoice* choice);
Result<RunWeights> ReadVersion(const RunFolder& folder, const JobPlan& plan,
                               const VersionChoice& choice);

struct WeightsChoice {
  std::string path;  // a run folder or a file
  JobSource source;  // the job of these weights
  VersionChoice version;
};
// `choice` must outlive the parsing.
void AddWeightsChoice(CLI::App& command, WeightsChoice* choice);

struct ChosenWeights {
  OpenedJob opened;
  RunWeights weights;
};
// kIfInputsUnknown: the data set stays closed (opened.data is null) if the file's metadata say how
// a sample becomes an input, and no flag names data.
enum class DataUse : uint8_t { kNeeded, kIfInputsUnknown };
Result<ChosenWeights> OpenWeights(const WeightsChoice& choice, DataUse use);

}  // namespace pando
