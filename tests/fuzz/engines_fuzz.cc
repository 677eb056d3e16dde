// A kind's engines for convolutions, as the scheduler sends them and a run's folder keeps them.
#include "common/check.h"
#include "run/engine_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {

std::vector<std::string> FuzzSeeds() {
  const EngineChoice choice{{"forward of 32 x 28 x 28 x 1", {.index = 38, .knobs = {{24, 2}}}},
                            {"weights", {.index = -1, .reason = "measured"}}};
  const Result<std::string> text = EnginesText(choice);
  PANDO_CHECK(text.ok());
  return {*text};
}

}  // namespace pando

// What can be read can be written, and reads back as the same engines.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  const Result<EngineChoice> choice = ParseEngines(TextIn(data, size), "engines");
  if (!choice.ok()) {
    PANDO_CHECK(!choice.status().message().empty());
    return 0;
  }
  const Result<std::string> text = EnginesText(*choice);
  if (!text.ok()) return 0;
  const Result<EngineChoice> again = ParseEngines(*text, "engines");
  PANDO_CHECK(again.ok() && *EnginesText(*again) == *text);
  return 0;
}
