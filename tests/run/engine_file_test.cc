#include "run/engine_file.h"

#include <doctest/doctest.h>

#include "common/atomic_file.h"
#include "proto/message_limits.h"
#include "tests/contains.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

EngineChoice SomeEngines() {
  return {{"forward of 32 x 28 x 28 x 1", {38, {}, 0, "first"}},
          {"data gradient of 1 x 1 x 1 x 1",
           {INT64_MAX, {{2, 7}, {24, -1}}, UINT64_MAX, "measured \"0.1\" ms"}}};
}

std::string ErrorFor(const std::string& text) {
  const Result<EngineChoice> parsed = ParseEngines(text, "engines.json");
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.status().code() == StatusCode::kInvalidArgument);
  return parsed.status().message();
}

TEST_CASE("engines survive as text") {
  for (const EngineChoice& choice : {EngineChoice(), SomeEngines()}) {
    const std::string text = *EnginesText(choice);
    CHECK_FALSE(text.empty());  // an empty text means that there are none
    const Result<EngineChoice> parsed = ParseEngines(text, "x");
    REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
    CHECK(*parsed == choice);
  }
}

TEST_CASE("the error of a broken text says where and what") {
  CHECK(Contains(ErrorFor(""), "engines.json: expected a JSON object"));
  CHECK(Contains(ErrorFor("[]"), "expected a JSON object"));
  CHECK(Contains(ErrorFor("{\"a\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}"),
                 "expected a JSON object"));
  CHECK(Contains(ErrorFor("{\"forward\": 7}"), "engines.json: 'forward'"));
  CHECK(Contains(ErrorFor("{\"forward\": {\"engine\": \"x\"}}"), "'forward'"));
  const std::string fields = "\"workspace_bytes\": 0, \"reason\": \"\", ";
  CHECK(Contains(ErrorFor("{\"a\": {\"engine\": 1, " + fields + "\"knobs\": {\"x\": 1}}}"),
                 "'x' is no number of a knob"));
  CHECK(Contains(ErrorFor("{\"a\": {\"engine\": 1, " + fields + "\"knobs\": [1]}}"), "'a'"));
  CHECK(Contains(ErrorFor("{\"a\": {\"engine\": 1, " + fields + "\"knobs\": {\"1\": 1e300}}}"),
                 "'1' is no number of a knob"));
  for (const char* number : {"1.7", "true", "\"1\""})
    CHECK(Contains(
        ErrorFor("{\"a\": {\"engine\": " + std::string(number) + ", " + fields + "\"knobs\": {}}}"),
        "whole numbers"));
  CHECK(Contains(ErrorFor("{\"a\": {" + fields + "\"knobs\": {}}}"), "engine"));
}

TEST_CASE("engines that no message holds are an error") {
  ConvEngine engine;
  engine.reason = std::string(kEnginesBytesMax, 'x');
  const Result<std::string> text = EnginesText({{"a", engine}});
  REQUIRE_FALSE(text.ok());
  CHECK(Contains(text.status().message(), "--tune-engines"));
}

TEST_CASE("a run folder keeps the engines of each kind") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  CHECK(ReadKeptEngines(folder)->empty());
  CHECK(FindKeptEngines(folder, "H200")->empty());
  const KindEngines h200{"cuda, H200", *EnginesText(SomeEngines())}, a100{"cuda, A100", "{}"};
  REQUIRE(KeepEngines(folder, h200).ok());
  REQUIRE(KeepEngines(folder, a100).ok());
  CHECK(*ReadKeptEngines(folder) == std::vector<KindEngines>{a100, h200});
  CHECK(*FindKeptEngines(folder, "cuda, H200") == h200.engines);
  CHECK(FindKeptEngines(folder, "cuda")->empty());
}

TEST_CASE("a job takes the engines of the file that it names") {
  TempFolder temp;
  Job job;
  CHECK(ReadGivenEngines(job)->empty());
  job.engines = temp.path() + "/engines.json";
  CHECK_FALSE(ReadGivenEngines(job).ok());
  REQUIRE(WriteEnginesFile(job.engines, {{"H200", "{}"}}).ok());
  CHECK(*ReadGivenEngines(job) == std::vector<KindEngines>{{"H200", "{}"}});
  REQUIRE(WriteFileAtomically(job.engines, "{\"H200\": {\"forward\": 3}}").ok());
  CHECK(Contains(ReadGivenEngines(job).status().message(), job.engines + ": H200: 'forward'"));
  CHECK_FALSE(WriteEnginesFile(job.engines, {{"H200", "no engines"}}).ok());
  CHECK(WriteEnginesFile(job.engines, {{"no UTF-8: \xff", "{}"}}).ok());
}

}  // namespace
}  // namespace pando
