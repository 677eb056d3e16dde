// pando plan: rates as people write them, a model's work, and what the program says.
#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/plan_report.h"
#include "common/atomic_file.h"
#include "common/exit_codes.h"
#include "models/graph.h"
#include "models/model.h"
#include "models/zoo.h"
#include "plan/shard_plan.h"
#include "plan/tensor_layout.h"
#include "tests/cli/pando_program.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

const std::vector<std::string> kPlan{
    "plan",        "--model", "lenet5",     "--workers", "4",         "--servers", "2",
    "--bandwidth", "100Mbit", "--replicas", "1",         "--step-ms", "10",        "--no-costs"};

std::vector<std::string> With(std::vector<std::string> args, const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

nlohmann::json MustPlan(const std::vector<std::string>& args) {
  const Outcome outcome = Pando(With(args, {"--json"}));
  CAPTURE(outcome.output);
  REQUIRE(outcome.exit_code == kExitCompleted);
  return nlohmann::json::parse(outcome.output);
}

Graph BuildZooGraph(const std::string& name) {
  Job job;
  job.model = name;
  const ZooModel& model = *FindZooModel(name);
  Result<Graph> graph = BuildModelGraph(job, model.input, model.class_count);
  REQUIRE(graph.ok());
  return *std::move(graph);
}

TEST_CASE("a bandwidth is bits or bytes a second, with a thousand's prefix") {
  const std::pair<const char*, double> known[] = {
      {"25Gbit", 3.125e9}, {"25 Gbit/s", 3.125e9}, {"25Gbps", 3.125e9}, {"1gbit", 1.25e8},
      {"100mbit", 1.25e7}, {"800MB/s", 8e8},       {"3GB", 3e9},        {"0.5kB/s", 500},
      {"8bit", 1},         {"1.6Tbit", 2e11}};
  for (const auto& [text, bytes] : known) {
    CAPTURE(text);
    const Result<double> parsed = ParseBandwidth("--bandwidth", text);
    REQUIRE(parsed.ok());
    CHECK(*parsed == doctest::Approx(bytes));
  }
  CHECK(BandwidthText(3.125e9) == "25 Gbit/s");
  CHECK(BandwidthText(125) == "1 kbit/s");
}

TEST_CASE("what is no bandwidth is refused with what was expected") {
  for (const char* text : {"", "25", "25G", "Gbit", "-1Gbit", "0Gbit", "nanGbit", "infGbit",
                           "25Gbitt", "25  Gbit", "25Xbit", "1e400Gbit", "1e300TB"}) {
    CAPTURE(text);
    const Result<double> parsed = ParseBandwidth("--bandwidth", text);
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.status().message().find(std::string("--bandwidth ") + text + ":") == 0);
    CHECK(parsed.status().message().find("25Gbit") != std::string::npos);
  }
}

TEST_CASE("a model's work is its FLOPs' share of the time, and its job's shards") {
  const Graph graph = BuildZooGraph("vgg16");
  const StepWork work = MakeWork(graph, 300);
  REQUIRE(work.layers.size() == graph.layers().size());
  CHECK(ComputeMs(work) == doctest::Approx(300));
  CHECK(GradientBytes(work) == graph.layout().float_count() * sizeof(float));
  CHECK(work.shards.size() == ShardPlan(graph.layout()).shard_count());
  uint64_t bytes = 0;
  for (const StepLayer& layer : work.layers) bytes += layer.bytes;
  CHECK(GradientBytes(work) - bytes == 64);  // the metrics, on a separate line
  // conv1_1 has no gradient of its input to make; fc1, of 411 MB, is cut into most of the shards.
  CHECK(work.layers[0].backward_ms == doctest::Approx(work.layers[0].forward_ms));
  size_t fc1 = 0;
  while (work.layers[fc1].bytes < 400'000'000) ++fc1;
  CHECK(work.layers[fc1].backward_ms == doctest::Approx(2 * work.layers[fc1].forward_ms));
  const auto of_fc1 = std::ranges::count_if(
      work.shards, [&](const StepShard& shard) { return shard.layer == fc1; });
  CHECK(of_fc1 >= 96);  // 411 MB / 4.2 MB
  CHECK(of_fc1 <= 99);
  CHECK(work.shards.front().layer == 0);
  CHECK(std::ranges::is_sorted(work.shards, {}, &StepShard::layer));
}

TEST_CASE("a count of parameters is spread evenly, a third of its time forward") {
  const StepWork work = MakeWork(1'000'000, 30);
  CHECK(work.shards.size() == 64);
  CHECK(GradientBytes(work) == 4'000'000);
  CHECK(ComputeMs(work) == doctest::Approx(30));
  CHECK(work.layers[5].backward_ms == doctest::Approx(2 * work.layers[5].forward_ms));
  CHECK(MakeWork(1, 30).shards.size() == 1);
}

TEST_CASE("a plan says all three strategies, the best of them, and how many servers to buy") {
  const Outcome outcome = Pando(kPlan);
  CAPTURE(outcome.output);
  REQUIRE(outcome.exit_code == kExitCompleted);
  for (const char* part :
       {"lenet5: 61706 parameters", "10 ms a step alone",
        "4 workers on 4 hosts, 100 Mbit/s each way, latency 0 us", "1 replica of each shard",
        "2 servers on separate hosts", "4 servers on the workers' hosts", "ring allreduce",
        "halving-doubling allreduce", "Best: ", "Servers to buy: "})
    CHECK(outcome.output.find(part) != std::string::npos);
  CHECK(outcome.output.find("costs at each end") == std::string::npos);
}

TEST_CASE("a plan prints its costs, and without any of them it is that of the links alone") {
  std::vector<std::string> plan(kPlan.begin(), kPlan.end() - 1);
  const std::string text = Pando(plan).output;
  CHECK(text.find("latency 10 us") != std::string::npos);
  CHECK(text.find("costs at each end: 10 us a message, 3 us a shard, 0.12 ns a byte; 0.1 ns to sum "
                  "a byte\n") != std::string::npos);
  const nlohmann::json costly = MustPlan(plan);
  CHECK(costly["message_us"] == 10);
  CHECK(costly["sum_ns"].get<double>() == doctest::Approx(0.1));
  const nlohmann::json zeros =
      MustPlan(With(plan, {"--message-us", "0", "--item-us", "0", "--byte-ns", "0", "--sum-ns", "0",
                           "--latency-us", "0"}));
  CHECK(zeros == MustPlan(kPlan));
  for (size_t i = 0; i < 4; ++i)
    CHECK(costly["predictions"][i]["step_ms"] > zeros["predictions"][i]["step_ms"]);
  CHECK(MustPlan(With(kPlan, {"--latency-us", "5"}))["latency_us"] == 5);
}

TEST_CASE("racks, their sums and the cut for them are said, and sums are for many hosts") {
  std::vector<std::string> plan{"plan",    "--parameters", "44000000", "--workers",
                                "256",     "--step-ms",    "140",      "--bandwidth",
                                "100Gbit", "--servers",    "256",      "--send-order",
                                "forward", "--rack-size",  "16"};
  const std::string text = Pando(plan).output;
  CHECK(text.find("racks of 16 worker hosts, oversubscription 1; a rack's workers sum "
                  "what goes to other racks\n") != std::string::npos);
  CHECK(text.find("run.servers_max = 31: set it in the job.\n") != std::string::npos);
  const nlohmann::json sums = MustPlan(plan);
  CHECK(sums["sums_on_rack"] == true);
  const nlohmann::json none = MustPlan(With(plan, {"--rack-sum", "never"}));
  CHECK(none["servers_max"] == 256);
  for (size_t i = 0; i < 2; ++i)
    CHECK(none["predictions"][i]["step_ms"] > sums["predictions"][i]["step_ms"]);
  plan[4] = "128";
  CHECK(MustPlan(plan)["sums_on_rack"] == false);
  CHECK(MustPlan(With(plan, {"--rack-sum", "always"}))["sums_on_rack"] == true);
  const nlohmann::json narrow = MustPlan(With(plan, {"--oversubscription", "8"}));
  CHECK(narrow["predictions"][1]["step_ms"] > MustPlan(plan)["predictions"][1]["step_ms"]);
  CheckUsageError(With(kPlan, {"--rack-sum", "always"}), "--rack-size");
  CheckUsageError(With(kPlan, {"--oversubscription", "2"}), "--rack-size");
}

TEST_CASE("goodput follows the rate of failures, and the replicas") {
  const nlohmann::json one = MustPlan(With(kPlan, {"--mtbf-hours", "1"}));
  CHECK(one["predictions"][0]["goodput"] < one["predictions"][1]["goodput"]);  // more machines
  CHECK(one["predictions"][1]["goodput"] == one["predictions"][2]["goodput"]);
  std::vector<std::string> plan = With(kPlan, {"--mtbf-hours", "1", "--recovery-s", "9"});
  plan[10] = "2";  // replicas
  const nlohmann::json two = MustPlan(plan);
  CHECK(two["predictions"][1]["goodput"].get<double>() ==
        doctest::Approx(1 / (1 + 9 * 4 / 3600.0)));
  CHECK(two["predictions"][2]["goodput"] == one["predictions"][2]["goodput"]);
  CHECK(Pando(plan).output.find("with 2 replicas a failure costs 9 s.") != std::string::npos);
  CHECK_FALSE(MustPlan(kPlan)["predictions"][0].contains("goodput"));
}

TEST_CASE("stragglers lengthen a step of several workers") {
  const nlohmann::json plan = MustPlan(With(kPlan, {"--straggle-percent", "10"}));
  CHECK(plan["predictions"][2]["step_ms"] > MustPlan(kPlan)["predictions"][2]["step_ms"]);
  CHECK(Pando(With(kPlan, {"--straggle-percent", "10"}))
            .output.find("the slowest of 4 workers computes 10.3 % longer than the mean") !=
        std::string::npos);
}

TEST_CASE("where allreduce is faster than any number of servers, none are to be bought for speed") {
  const Outcome outcome = Pando({"plan", "--parameters", "44000000", "--workers", "8",
                                 "--bandwidth", "100Gbit", "--step-ms", "140", "--no-costs"});
  REQUIRE(outcome.exit_code == kExitCompleted);
  CHECK(outcome.output.find("Best: ring allreduce") != std::string::npos);
  CHECK(outcome.output.find("Servers to buy: none for speed. Allreduce is faster than 1 to 8 "
                            "servers on separate hosts.\nThe best number of these is ") !=
        std::string::npos);
}

TEST_CASE("the cut for many servers makes them faster than the ring, the cut for few does not") {
  std::vector<std::string> plan{"plan", "--parameters", "44000000", "--workers",
                                "64",   "--bandwidth",  "100Gbit",  "--step-ms",
                                "140",  "--no-costs"};
  const auto efficiencies = [](const nlohmann::json& json) {
    std::vector<double> all;
    for (const auto& prediction : json["predictions"]) all.push_back(prediction["efficiency"]);
    return all;
  };
  const auto fine = efficiencies(MustPlan(plan));
  CHECK(std::min(fine[0], fine[1]) > fine[2]);
  const auto coarse = efficiencies(MustPlan(With(plan, {"--servers-max", "16"})));
  CHECK(std::max(coarse[0], coarse[1]) < coarse[2]);
}

TEST_CASE("the memory of each role follows from the protocol's bounds") {
  const std::vector<std::string> plan{"plan", "--parameters", "1000000", "--workers",
                                      "4",    "--servers",    "2",       "--replicas",
                                      "2",    "--threads",    "2",       "--micro-batches",
                                      "8",    "--bandwidth",  "1Gbit",   "--step-ms",
                                      "10",   "--memory",     "--json"};
  const Outcome outcome = Pando(plan);
  REQUIRE_MESSAGE(outcome.exit_code == kExitCompleted, outcome.output);
  std::map<std::string, uint64_t> bytes;
  const auto json = nlohmann::json::parse(outcome.output);
  for (const auto& bound : json.at("memory")) bytes[bound.at("what")] = bound.at("bytes");
  CHECK(bytes.at("parameters") == 2 * 4'000'000);
  CHECK(bytes.at("sums in work") == 4'000'000 * 4 * 2);  // a leaf and three levels, two threads
  CHECK(bytes.at("records: kept versions, and a pinned one") == 3 * 4'000'000);
  CHECK(bytes.at("contributions") == 4 * 2'000'000);
  CHECK(bytes.at("replies that wait for members") == (6 << 22));
  const std::vector<std::string> text(plan.begin(), plan.end() - 1);
  const nlohmann::json stale = MustPlan(With(text, {"--staleness", "1"}));
  for (const auto& bound : stale.at("memory")) bytes[bound.at("what")] = bound.at("bytes");
  CHECK(bytes.at("parameters") == 4 * 4'000'000);
  CHECK(bytes.at("records: kept versions, and a pinned one") == 5 * 4'000'000);
  CHECK(bytes.at("optimizer state, and one that a snapshot reads") == 6 * 4'000'000);
  CHECK(bytes.at("contributions") == 8 * 2'000'000);
  CHECK(Pando(text).output.find("server    together") != std::string::npos);
}

TEST_CASE("the shard that a step waits for is said where it is a good part of a step") {
  // Shards of 61.4 kB; at 100 Mbit/s four copies take 19.7 ms each way.
  std::vector<std::string> plan{"plan", "--parameters", "1000000", "--workers",
                                "4",    "--bandwidth",  "100Mbit", "--step-ms"};
  CHECK(Pando(With(plan, {"10"})).output.find("its 4 copies take 19.7 ms\ninto its server") !=
        std::string::npos);
  CHECK(Pando(With(plan, {"10000"})).output.find("into its server") == std::string::npos);
}

TEST_CASE("JSON has the closed forms of what links carry") {
  const nlohmann::json plan = MustPlan(kPlan);
  const double model_ms = plan["gradient_bytes"].get<double>() / 12.5e6 * 1000;
  REQUIRE(plan["predictions"].size() == 4);
  CHECK(plan["predictions"][0]["strategy"] == "ps-own-hosts");
  CHECK(plan["predictions"][0]["link_ms"].get<double>() ==
        doctest::Approx(2 * model_ms).epsilon(1e-3));  // one of the two servers has a bit more
  CHECK(plan["predictions"][0]["hosts"] == 6);
  CHECK(plan["predictions"][1]["strategy"] == "ps-worker-hosts");
  CHECK(plan["predictions"][1]["link_ms"].get<double>() == doctest::Approx(1.5 * model_ms));
  CHECK(plan["predictions"][2]["strategy"] == "allreduce");
  CHECK(plan["predictions"][2]["link_ms"].get<double>() == doctest::Approx(1.5 * model_ms));
  CHECK_FALSE(plan["predictions"][0].contains("images_per_second"));
  for (const nlohmann::json& p : plan["predictions"]) {
    CHECK(p["step_ms"].get<double>() >= 10);
    CHECK(p["efficiency"].get<double>() == doctest::Approx(10 / p["step_ms"].get<double>()));
  }
  CHECK(plan["servers_to_buy"]["tried_max"] == 4);
}

TEST_CASE("images a second are another way to say a step, and need a batch") {
  const std::vector<std::string> plan{"plan", "--parameters", "1000",     "--workers",
                                      "2",    "--bandwidth",  "1000TB/s", "--batch",
                                      "64",   "--no-costs"};
  const nlohmann::json by_images = MustPlan(With(plan, {"--images-per-second", "128"}));
  CHECK(by_images["alone_ms"].get<double>() == doctest::Approx(500));
  CHECK(by_images["predictions"][2]["images_per_second"].get<double>() == doctest::Approx(256));
  CHECK(by_images == MustPlan(With(plan, {"--step-ms", "500"})));
}

TEST_CASE("without a number of servers there are as many as are worth having") {
  std::vector<std::string> plan = kPlan;
  plan.erase(plan.begin() + 5, plan.begin() + 7);
  const nlohmann::json json = MustPlan(plan);
  CHECK(json["predictions"][0]["servers"] == json["servers_to_buy"]["enough"]);
}

TEST_CASE("workers of one host share its link, and a sum there is one copy") {
  const std::vector<std::string> pairs = With(kPlan, {"--workers-per-host", "2"});
  const nlohmann::json apart = MustPlan(pairs);
  const nlohmann::json summed = MustPlan(With(pairs, {"--host-sum"}));
  CHECK(apart["worker_hosts"] == 2);
  CHECK(apart["predictions"][0]["link_ms"].get<double>() ==
        doctest::Approx(2 * summed["predictions"][0]["link_ms"].get<double>()));
  CHECK(Pando(pairs).output.find("--host-sum") != std::string::npos);
}

TEST_CASE("micro-batches that are no subtree are said and counted") {
  const std::vector<std::string> odd = With(kPlan, {"--micro-batches", "6"});
  CHECK(MustPlan(odd)["pushes_per_shard"] == 2);
  CHECK(Pando(odd).output.find("--micro-batches") != std::string::npos);
  CHECK(MustPlan(With(kPlan, {"--micro-batches", "8"}))["pushes_per_shard"] == 1);
}

TEST_CASE("a network's file is planned for like a model of the zoo") {
  TempFolder temp;
  const std::string path = temp.path() + "/net.toml";
  REQUIRE(WriteFileAtomically(path,
                              "[[layer]]\nname = \"flat\"\ntype = \"Flatten\"\n"
                              "[[layer]]\nname = \"fc\"\ntype = \"Linear\"\n"
                              "out_features = \"classes\"\n")
              .ok());
  const nlohmann::json plan =
      MustPlan({"plan", "--model", path, "--input", "4x4x1", "--classes", "3", "--workers", "2",
                "--bandwidth", "1Gbit", "--step-ms", "1"});
  CHECK(plan["parameters"] == 4 * 4 * 3 + 3);
}

TEST_CASE("a plan's bad flags are one line that says what was expected") {
  const std::vector<std::string> some{"plan", "--workers", "4", "--bandwidth", "1Gbit"};
  const std::vector<std::string> model = With(some, {"--model", "lenet5"});
  const std::vector<std::string> plan = With(model, {"--step-ms", "10"});
  CheckUsageError(With(some, {"--step-ms", "10"}), "one of --model NAME and --parameters N");
  CheckUsageError(With(plan, {"--parameters", "5"}), "one of --model NAME and --parameters N");
  CheckUsageError(model, "one of --step-ms X and --images-per-second X");
  CheckUsageError(With(plan, {"--images-per-second", "5", "--batch", "1"}), "one of --step-ms");
  CheckUsageError(With(model, {"--images-per-second", "5"}), "needs --batch N");
  CheckUsageError(With(plan, {"--workers-per-host", "3"}), "multiple of --workers-per-host 3");
  CheckUsageError(With(plan, {"--micro-batches", "3"}), "expected 4 or more");
  CheckUsageError({"plan", "--model", "lenet5", "--step-ms", "1", "--workers", "2"}, "--bandwidth");
  CheckUsageError(
      {"plan", "--model", "lenet", "--step-ms", "1", "--workers", "2", "--bandwidth", "1Gbit"},
      "did you mean 'lenet5'");
  CheckUsageError(
      {"plan", "--model", "lenet5", "--step-ms", "1", "--workers", "2", "--bandwidth", "fast"},
      "--bandwidth fast: expected a number");
  CheckUsageError(With(plan, {"--latency-us", "nan"}),
                  "--latency-us: expected a number from 0 to 1e+09, got nan");
  for (const std::string flag : {"--optimizer-ms", "--message-us", "--item-us", "--byte-ns",
                                 "--sum-ns", "--straggle-percent"})
    CheckUsageError(With(plan, {flag, "-1"}), flag + ": expected a number from 0");
  CheckUsageError(With(plan, {"--byte-ns", "nan"}), "--byte-ns: expected a number from 0");
  CheckUsageError(With(plan, {"--mtbf-hours", "0"}), "expected a number from 1e-06");
  CheckUsageError(With(plan, {"--recovery-s", "5"}), "need --mtbf-hours X");
  CheckUsageError(With(plan, {"--no-costs", "--item-us", "1"}), "--no-costs");
  CheckUsageError(With(model, {"--step-ms", "0"}), "expected a number from 1e-06");
}

TEST_CASE("no time of the table is below zero for rounding alone") {
  const Outcome outcome = Pando(
      {"plan", "--model", "lenet5", "--workers", "1", "--bandwidth", "100Gbit", "--step-ms", "10"});
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(outcome.output.find(" -0.0 ") == std::string::npos);
}

}  // namespace
}  // namespace pando
