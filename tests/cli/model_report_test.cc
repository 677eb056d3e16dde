#include "cli/model_report.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/exit_codes.h"
#include "job/job_draft.h"
#include "job/job_file.h"
#include "models/network.h"
#include "models/zoo.h"
#include "tests/cli/pando_program.h"
#include "tests/contains.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

size_t LineCount(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::string NetworkOfDocs() {
  Result<std::string> doc =
      ReadTextFile(std::string(std::getenv("PANDO_SOURCE_ROOT")) + "/docs/networks.md");
  REQUIRE(doc.ok());
  const size_t first = doc->find("```toml\n") + 8;
  return doc->substr(first, doc->find("```\n", first) - first);
}

TEST_CASE("models lists the whole zoo with parameters") {
  const Outcome outcome = Pando({"models"});
  CHECK(outcome.exit_code == kExitCompleted);
  for (const std::string& name : ZooNames()) CHECK(Contains(outcome.output, name));
  CHECK(Contains(outcome.output, "138,357,544"));
  CHECK(Contains(outcome.output, "docs/networks.md"));
}

TEST_CASE("a model's summary has layers, shapes, parameters, FLOPs and bytes") {
  const Outcome outcome =
      Pando({"model", "lenet5", "--summary", "--batch", "64", "--optimizer", "adam"});
  CAPTURE(outcome.output);
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(Contains(outcome.output, "lenet5 on 28 x 28 x 1 (height x width x channels), 10 classes"));
  CHECK(Contains(outcome.output, "conv2   Conv2d"));
  CHECK(Contains(outcome.output, "10 x 10 x 16              2,416"));
  CHECK(Contains(outcome.output, "12 layers, 61,706 parameters, 0 statistics"));
  CHECK(Contains(outcome.output, "of 64 samples"));
  CHECK(Contains(outcome.output, "optimizer state    494.2 kB"));  // two floats a parameter
  CHECK(Contains(outcome.output, "in training; "));
  CHECK(Contains(outcome.output, "is in use at the peak"));
  CHECK(Contains(outcome.output, "for the activations of 64 samples"));
  CHECK(Contains(outcome.output, "by a computing thread: the larger of the two"));
}

TEST_CASE("a residual model's summary says what reads what") {
  const Outcome outcome = Pando({"model", "resnet18-cifar", "--classes", "100"});
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(Contains(outcome.output, "reads layer2.0.bn2, layer2.0.downsample.1"));
  CHECK(Contains(outcome.output, "11,220,132 parameters, 9,600 statistics"));
}

TEST_CASE("a memory timeline has a row and a bar for every event") {
  TempFolder temp;
  const std::string stem = temp.path() + "/lenet5";
  const Outcome outcome = Pando({"model", "lenet5", "--memory-timeline", stem + ".csv"});
  CAPTURE(outcome.output);
  REQUIRE(outcome.exit_code == kExitCompleted);
  const std::string csv = *ReadTextFile(stem + ".csv");
  const std::string svg = *ReadTextFile(stem + ".svg");
  Job job;
  job.model = "lenet5";
  const Model model = *Model::Create(job, {28, 28, 1}, 10);
  const MemoryPlan plan = Network::PlanMemory(model, {.training = 32}).training;
  CHECK(LineCount(csv) == plan.events.size() + 1);
  CHECK(csv.starts_with("event,phase,layers,parameters_bytes,gradients_bytes,"));
  const std::string header = csv.substr(0, csv.find('\n'));
  CHECK(header.ends_with(",scratch_bytes,servers_optimizer_state_bytes,worker_total_bytes"));
  CHECK(Contains(csv, "\n0,forward,conv1 relu1 pool1,"));
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(Contains(svg, ">servers_optimizer_state<"));
  CHECK(Contains(svg, "lenet5, 28 x 28 x 1, micro-batches of 32"));
}

TEST_CASE("the network of the documentation is one") {
  TempFolder temp;
  const std::string path = temp.path() + "/mine.toml";
  std::ofstream(path) << NetworkOfDocs();
  const Outcome outcome = Pando({"model", path, "--input", "28x28x1"});
  CAPTURE(outcome.output);
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(Contains(outcome.output, "on 28 x 28 x 3"));
  CHECK(Contains(outcome.output, "reads bn2, relu1"));
}

TEST_CASE("a network's file travels in the job and is read once") {
  TempFolder temp;
  const std::string path = temp.path() + "/mine.toml";
  std::ofstream(path)
      << "[[layer]]\nname = \"flat\"\ntype = \"Flatten\"\n"
      << "[[layer]]\nname = \"fc\"\ntype = \"Linear\"\nout_features = \"classes\"\n";
  Job job;
  job.model = path;
  REQUIRE(LoadNetwork(&job).ok());
  Result<Job> read = ParseJobText(WriteJobText(job), "job.toml");
  REQUIRE(read.ok());
  CHECK(read->network == job.network);
  CHECK(JobIdentityText(*read).find("out_features") != std::string::npos);
  std::filesystem::remove(path);
  CHECK(LoadNetwork(&*read).ok());
  CHECK(Model::Create(*read, {28, 28, 1}, 10)->layout().parameter_count() == 7850);
  // Another model over that job does not get this one's text.
  JobDraft draft;
  REQUIRE(draft.AddToml(WriteJobText(job), "job.toml").ok());
  REQUIRE(draft.AddOverrides({{.key = "model.name", .text = "x.toml", .where = "--model"}}).ok());
  CHECK(draft.job().network.empty());
}

TEST_CASE("bad models, networks and shapes are one line each") {
  TempFolder temp;
  auto file = [&](const std::string& name, const std::string& text) {
    std::ofstream(temp.path() + "/" + name) << text;
    return temp.path() + "/" + name;
  };
  CheckUsageError({"model", "resnet19"}, "did you mean");
  CheckUsageError({"model", "lenet5", "--input", "28x28"}, "expected HEIGHTxWIDTHxCHANNELS");
  CheckUsageError({"model", "lenet5", "--input", "4x4x1"}, "layer 'conv2' gets 2 x 2 x 6");
  CheckUsageError({"model", file("empty.toml", "")}, "has 0 bytes");
  const std::string relu = "[[layer]]\nname = \"a\"\ntype = \"ReLU\"\n";
  CheckUsageError({"model", file("cycle.toml", relu + "inputs = [\"b\"]\n[[layer]]\nname = \"b\"\n"
                                                      "type = \"ReLU\"\n")},
                  "layer 'a' is part of a cycle: a -> b -> a");
  CheckUsageError({"model", file("clash.toml", relu)},
                  "layer 'a' makes 32 x 32 x 3 (height x width x channels), but the last layer "
                  "must make 1 x 1 x 10");
  CheckUsageError({"model", temp.path() + "/none.toml"}, "cannot read " + temp.path());
  CheckUsageError({"model", file("long.toml", std::string((1 << 20) + 1, '#'))},
                  "has 1048577 bytes, and a network's file has 1 to 1048576");
}

TEST_CASE("only three whole numbers above 0 are a shape") {
  for (const char* shape : {"-1x28x1", "28x28x100000", "0x28x1", "28x28", "28x28x1x1", "28x28x1 ",
                            "+28x28x1", "28,28,1", "x28x1", "28x28x4294967297"}) {
    CAPTURE(shape);
    CheckUsageError({"model", "mlp", "--input", shape},
                    std::string("--input ") + shape + ": expected HEIGHTxWIDTHxCHANNELS");
  }
  CheckUsageError({"model", "mlp", "--input", "65536x65536x1"},
                  "has samples of 65536 x 65536 x 1 (height x width x channels), and 1073741824 "
                  "values is the most");
}

TEST_CASE("advice about another model is given where there are others, not for one's own file") {
  TempFolder temp;
  const std::string path = temp.path() + "/mine.toml";
  std::ofstream(path) << "[[layer]]\nname = \"conv\"\ntype = \"Conv2d\"\nout_channels = 4\n"
                      << "kernel_size = 64\n";
  const Outcome own = Pando({"model", path});
  CHECK(Contains(own.output, "layer 'conv' gets 32 x 32 x 3"));
  CHECK_FALSE(Contains(own.output, "choose another model"));
  CheckUsageError({"model", "mnist-cnn", "--input", "4x4x1"}, "choose another model or other data");
}

}  // namespace
}  // namespace pando
