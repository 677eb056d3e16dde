#include "cli/doctor.h"

#include <doctest/doctest.h>

#include "tests/cli/pando_program.h"

namespace pando {
namespace {

// Nothing is in the way.
MachineFacts Healthy() {
  return {.open_files_max = 1024, .has_loopback = true, .is_cuda_built = true};
}

bool Says(const MachineFacts& facts, const std::string& words) {
  const std::vector<std::string> problems = FindProblems(facts);
  REQUIRE(problems.size() == 1);
  CAPTURE(problems[0]);
  return problems[0].find(words) != std::string::npos;
}

TEST_CASE("a machine without GPUs has no problem with them") {
  MachineFacts facts = Healthy();
  CHECK(FindProblems(facts).empty());
  facts.is_cuda_built = false;
  CHECK(FindProblems(facts).empty());
}

TEST_CASE("few open files and a missing loopback are problems, with what to do") {
  MachineFacts facts = Healthy();
  facts.open_files_max = 1023;
  CHECK(Says(facts, "ulimit -n 1024"));
  facts = Healthy();
  facts.has_loopback = false;
  CHECK(Says(facts, "127.0.0.1"));
}

TEST_CASE("a card that no driver knows is a problem") {
  MachineFacts facts = Healthy();
  facts.nvidia_card_count = 1;
  CHECK(Says(facts, "1 NVIDIA card is on the bus"));
  facts.nvidia_card_count = 8;
  CHECK(Says(facts, "8 NVIDIA cards are on the bus"));
  facts.gpus.resize(8);
  CHECK(FindProblems(facts).empty());
}

TEST_CASE("a GPU that this build, or CUDA, cannot use is a problem") {
  MachineFacts facts = Healthy();
  facts.gpus = {{.name = "NVIDIA H200"}};
  facts.cuda_trouble = "cannot load libcudnn.so.9";
  CHECK(Says(facts, "libcudnn.so.9"));
  facts.is_cuda_built = false;
  facts.cuda_trouble.clear();
  CHECK(Says(facts, "CUDA_HOME"));
}

TEST_CASE("every GPU has its line, with the name that --device takes") {
  MachineFacts facts = Healthy();
  facts.gpus = {{.name = "NVIDIA H200",
                 .memory_bytes = uint64_t{1} << 30,
                 .memory_used_bytes = 0,
                 .utilisation_percent = 0,
                 .compute_capability = 90}};
  const std::string text = DescribeMachine(facts, {{"ZeroMQ", "4.3.4"}});
  CAPTURE(text);
  CHECK(text.find("cuda:0        NVIDIA H200, compute capability 9.0") != std::string::npos);
  CHECK(text.find("ZeroMQ        4.3.4") != std::string::npos);
}

TEST_CASE("pando doctor describes this machine") {
  const Outcome outcome = Pando({"doctor"});
  CAPTURE(outcome.output);
  CHECK(outcome.exit_code <= 1);
  for (const char* word : {"processor", "open files", "driver", "ZeroMQ", "Cap'n Proto"})
    CHECK(outcome.output.find(word) != std::string::npos);
}

}  // namespace
}  // namespace pando
