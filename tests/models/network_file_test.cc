#include "models/zoo.h"

#include <algorithm>

#include "tests/models/support.h"
#include "tests/repeated.h"

namespace pando {
namespace {

// A stem, a residual block, and the scores.
constexpr const char* kResidual = R"(
channels = 3

[[layer]]
name = "stem"
type = "Conv2d"
out_channels = 8
kernel_size = 3
padding = 1
bias = false
init = "kaiming_normal"

[[layer]]
name = "conv"
type = "Conv2d"
out_channels = 8
kernel_size = 3
padding = 1
groups = 4

[[layer]]
name = "bn"
type = "BatchNorm2d"
eps = 1e-3
momentum = 0.2

[[layer]]
name = "add"
type = "Add"
inputs = ["bn", "stem"]

[[layer]]
name = "pool"
type = "MaxPool2d"
kernel_size = 2

[[layer]]
name = "mean"
type = "GlobalAvgPool2d"

[[layer]]
name = "drop"
type = "Dropout"

[[layer]]
name = "fc"
type = "Linear"
out_features = "classes"
init = "normal"
init_std = 0.02
)";

Result<Graph> ParseGraph(const std::string& text, SampleShape data = {8, 8, 1}) {
  Job job;
  job.model = "net.toml";
  job.network = text;
  return BuildModelGraph(job, data, 10);
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

void CheckError(const std::string& text, const std::string& expected) {
  const Result<Graph> graph = ParseGraph(text);
  REQUIRE_FALSE(graph.ok());
  CAPTURE(graph.status().message());
  CHECK(graph.status().code() == StatusCode::kInvalidArgument);
  CHECK(graph.status().message().find(expected) != std::string::npos);
}

TEST_CASE("a network in TOML has the layers that it says, PyTorch's defaults elsewhere") {
  const Result<Graph> graph = ParseGraph(kResidual);
  REQUIRE_MESSAGE(graph.ok(), graph.status().message());
  CHECK(graph->input() == SampleShape{8, 8, 3});  // channels = 3, one of the data
  const std::vector<Layer>& layers = graph->layers();
  REQUIRE(layers.size() == 8);
  CHECK(layers[0].spec.init == WeightInit::kKaimingNormalFanOut);
  CHECK_FALSE(layers[0].spec.bias);
  CHECK(layers[1].spec.groups == 4);
  CHECK(layers[1].spec.stride == 1);
  CHECK(layers[1].spec.bias);
  CHECK(layers[2].spec.eps == 1e-3f);
  CHECK(layers[2].spec.momentum == 0.2f);
  CHECK(layers[3].inputs == std::vector<int>{2, 0});
  CHECK(layers[4].out == SampleShape{4, 4, 8});  // stride = kernel_size
  CHECK(layers[6].spec.probability == 0.5f);
  CHECK(layers[7].out == SampleShape{1, 1, 10});
  CHECK(layers[7].spec.init_stddev == 0.02f);
}

TEST_CASE("a cycle, a shape clash and a layer that is not there are one line with names") {
  CheckError(Replaced(kResidual, "type = \"BatchNorm2d\"\n",
                      "type = \"BatchNorm2d\"\ninputs = [\"add\"]\n"),
             "model net.toml: layer 'bn' is part of a cycle: bn -> add -> bn");
  CheckError(Replaced(kResidual, "groups = 4", "stride = 2"),
             "model net.toml: layer 'add' adds 4 x 4 x 8 and 8 x 8 x 8");
  CheckError(Replaced(kResidual, "\"stem\"]", "\"stemm\"]"), "did you mean 'stem'");
}

TEST_CASE("what a network's file gets wrong is named with file, line and layer") {
  CheckError("channels = ", "net.toml:1: not valid TOML");
  CheckError("", "net.toml: a network is 1 to 2000 tables [[layer]]");
  CheckError("layer = [1]", "net.toml:1: a layer is a table, [[layer]]");
  CheckError("chanels = 3", "net.toml:1: unknown key 'chanels'; did you mean 'channels'?");
  CheckError("[[layer]]\ntype = \"ReLU\"", "net.toml:1: layer 1: name is missing");
  CheckError("[[layer]]\nname = \"a b\"\ntype = \"ReLU\"", "net.toml:1: layer 1: name must be");
  CheckError("[[layer]]\nname = \"a\"\ntype = \"BatchNorm\"",
             "net.toml:1: layer 'a': unknown type 'BatchNorm'; did you mean 'BatchNorm2d'?");
  CheckError(Replaced(kResidual, "kernel_size = 3", ""), "layer 'stem': kernel_size is missing");
  CheckError(Replaced(kResidual, "kernel_size = 3", "kernel_size = 0"),
             "net.toml:8: layer 'stem': kernel_size must be a whole number, at least 1 and at most "
             "4096, got 0");
  CheckError(Replaced(kResidual, "out_channels = 8", "out_channels = \"class\""),
             "out_channels must be \"classes\" or a whole number");
  CheckError(Replaced(kResidual, "bias = false", "bias = 1"), "bias must be true or false, got 1");
  CheckError(Replaced(kResidual, "eps = 1e-3", "p = 1e-3"), "layer 'bn': unknown key 'p'");
  CheckError(Replaced(kResidual, "[\"bn\", \"stem\"]", "\"bn\""),
             "inputs must be a list of layers' names");
  CheckError(Replaced(kResidual, "init = \"normal\"", "init = \"norml\""),
             "unknown init 'norml'; did you mean 'normal'?");
  CheckError(Replaced(kResidual, "0.02", "\"wide\""), "init_std must be a finite number");
}

TEST_CASE("numbers that no layer can have are refused with their key") {
  const char* const kernels[] = {"-3", "4097", "9223372036854775807", "3.0"};
  for (const std::string kernel : kernels) {
    CheckError(Replaced(kResidual, "kernel_size = 3", "kernel_size = " + kernel),
               "net.toml:8: layer 'stem': kernel_size must be a whole number, at least 1 and at "
               "most 4096, got " +
                   kernel);
  }
  CheckError(Replaced(kResidual, "padding = 1", "padding = -1"),
             "padding must be a whole number, at least 0 and at most 4096, got -1");
  CheckError(Replaced(kResidual, "out_channels = 8", "out_channels = -8"),
             "out_channels must be \"classes\" or a whole number, at least 1 and at most 1048576");
  CheckError(Replaced(kResidual, "out_channels = 8", "out_channels = 1048577"), "got 1048577");
  CheckError(Replaced(kResidual, "groups = 4", "groups = -4"), "groups must be a whole number");
  CheckError(Replaced(kResidual, "channels = 3", "channels = 1048577"),
             "net.toml:2: channels must be a whole number, at least 1 and at most 1048576");
  for (const std::string real : {"nan", "inf", "-inf", "1e300"}) {
    CheckError(Replaced(kResidual, "0.02", real), "init_std must be a finite number, got ");
    CheckError(Replaced(kResidual, "1e-3", real), "eps must be a finite number, got ");
  }
  CheckError(Replaced(kResidual, "0.02", "-1"), "layer 'fc' has init_std -1");
  CheckError(Replaced(kResidual, "1e-3", "-1e-3"), "layer 'bn' has eps -0.001");
  CheckError(Replaced(kResidual, "momentum = 0.2", "momentum = 1.5"), "momentum 1.5");
  CheckError(Replaced(kResidual, "\"Dropout\"", "\"Dropout\"\np = 1"), "dropout probability 1");
}

TEST_CASE("a layer without type and a list of no inputs are refused") {
  CheckError(Replaced(kResidual, "type = \"GlobalAvgPool2d\"\n", ""),
             "layer 'mean': type is missing");
  CheckError(Replaced(kResidual, "[\"bn\", \"stem\"]", "[]"),
             "layer 'add': inputs must be a list of layers' names, got []");
}

TEST_CASE("more layers than a network may have are refused") {
  std::string text;
  for (int i = 0; i <= 2000; ++i) {
    text += "[[layer]]\nname = \"relu" + std::to_string(i) + "\"\ntype = \"ReLU\"\n";
  }
  CheckError(text, "net.toml: a network is 1 to 2000 tables [[layer]]");
}

TEST_CASE("a key of very many parts is refused") {
  CHECK(ParseGraph(Repeated("a.", 200'000) + "a = 1\n")
            .status()
            .message()
            .ends_with(": a key has more than 16 dots"));
}

TEST_CASE("an error is one short line for any file content") {
  const std::string many(1000, 'x');
  const std::string escaped = "\"a\\nb\\u001b[2J" + many + "\"";  // a newline and the like
  for (const std::string& text :
       {Replaced(kResidual, "kernel_size = 3", "kernel_size = " + escaped),
        Replaced(kResidual, "kernel_size = 3", "kernel_size = {a = [1, 2], b = {c = 3}}"),
        Replaced(kResidual, "type = \"Dropout\"", "type = " + escaped),
        Replaced(kResidual, "groups = 4", escaped + " = 4"),
        Replaced(kResidual, "[\"bn\", \"stem\"]", "[\"bn\", " + escaped + "]"),
        Replaced(kResidual, "name = \"drop\"", "name = " + escaped),
        Replaced(kResidual, "init = \"normal\"", "init = " + escaped)}) {
    const std::string message = ParseGraph(text).status().message();
    CAPTURE(message);
    CHECK(!message.empty());
    CHECK(std::ranges::none_of(message, [](char c) { return c >= 0 && c < ' '; }));
    CHECK(message.size() < 300);
  }
}

}  // namespace
}  // namespace pando
