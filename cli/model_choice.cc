#include "cli/model_choice.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "common/printable.h"
#include "models/model_graph.h"
#include "models/zoo.h"

namespace pando {
namespace {

// "224x224x3": height, width, channels.
Result<SampleShape> ParseShape(const std::string& text) {
  constexpr uint32_t kSideMax = 99999;
  std::array<uint32_t, 3> sides{};
  const char* at = text.data();
  const char* const end = at + text.size();
  bool is_shape = true;
  for (size_t i = 0; i < sides.size() && is_shape; ++i) {
    if (i > 0) is_shape = at != end && *at++ == 'x';
    const auto [next, error] = std::from_chars(at, end, sides[i]);
    is_shape = is_shape && error == std::errc{} && sides[i] >= 1 && sides[i] <= kSideMax;
    at = next;
  }
  if (is_shape && at == end) return SampleShape{sides[0], sides[1], sides[2]};
  return InvalidArgument(
      fmt::format("--input {}: expected HEIGHTxWIDTHxCHANNELS, each 1 to {}, as 224x224x3",
                  Printable(text), kSideMax));
}

}  // namespace

void AddModelShapeOptions(CLI::App& command, ModelChoice* choice) {
  command.add_option("--input", choice->input, "shape of a sample [what the model was made for]")
      ->type_name("HxWxC");
  command.add_option("--classes", choice->class_count, "classes [what the model was made for]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20));
}

Result<Job> JobOf(const ModelChoice& choice, const std::string& where) {
  JobDraft draft;
  std::vector<JobDraft::Override> overrides{
      {.key = "model.name", .text = choice.name, .where = where}};
  overrides.insert(overrides.end(), choice.source.overrides.begin(), choice.source.overrides.end());
  if (Status s = draft.AddOverrides(overrides); !s.ok()) return s;
  Result<Job> job = draft.Finish();
  if (!job.ok()) return job;
  if (Status s = LoadNetwork(&*job); !s.ok()) return s;
  return job;
}

Result<Graph> GraphOf(const ModelChoice& choice, const Job& job) {
  const ZooModel* zoo_model = FindZooModel(job.model);
  SampleShape shape = zoo_model != nullptr ? zoo_model->input : SampleShape{32, 32, 3};
  uint32_t class_count = zoo_model != nullptr ? zoo_model->class_count : 10;
  if (!choice.input.empty()) {
    Result<SampleShape> given = ParseShape(choice.input);
    if (!given.ok()) return given.status();
    shape = *given;
  }
  if (choice.class_count > 0) class_count = choice.class_count;
  return BuildModelGraph(job, shape, class_count);
}

}  // namespace pando
