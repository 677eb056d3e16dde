// The program itself, as a user calls it.
#include <doctest/doctest.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/atomic_file.h"
#include "common/exit_codes.h"
#include "common/system.h"
#include "common/unique_fd.h"
#include "job/job_file.h"
#include "tests/cli/pando_program.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

const std::vector<std::string> kTiny{"train",
                                     "--dataset",
                                     "synthetic-digits",
                                     "--set",
                                     "data.synthetic_train_samples=100",
                                     "--set",
                                     "data.synthetic_test_samples=10"};

std::vector<std::string> Tiny(std::vector<std::string> more) {
  more.insert(more.begin(), kTiny.begin(), kTiny.end());
  return more;
}

TEST_CASE("version and help succeed") {
  CHECK(Pando({"--version"}).output == std::string("pando ") + PandoVersion() + "\n");
  for (const char* command : {"train", "scheduler", "server", "worker", "status", "export",
                              "evaluate", "verify", "plan", "timeline", "top"}) {
    const Outcome outcome = Pando({command, "--help"});
    CHECK(outcome.exit_code == kExitCompleted);
    CHECK(outcome.output.find("Example") != std::string::npos);
    CHECK(outcome.output.find("Exit codes") != std::string::npos);
  }
  CHECK(Pando({}).exit_code == kExitUsage);
}

TEST_CASE("top without a terminal names the command that needs none") {
  CheckUsageError({"top", "runs/first"}, "pando status prints the same once");
}

TEST_CASE("an argument that is not UTF-8 is one error that names it, of every command") {
  const std::string latin = "caf\xe9";
  for (const char* command :
       {"train",  "run",   "scheduler", "server",   "worker",   "node",   "resume",
        "status", "drain", "export",    "evaluate", "predict",  "verify", "plan",
        "data",   "keys",  "model",     "view",     "timeline", "bench",  "help"}) {
    for (const std::vector<std::string>& args :
         std::vector<std::vector<std::string>>{{latin},
                                               {"--join", latin},
                                               {"--set", "run.name=" + latin},
                                               {"--" + latin},
                                               {"--", latin},
                                               {"true", latin},
                                               {latin + ".py"},
                                               {"--run-dir=" + latin}}) {
      std::vector<std::string> all{command};
      all.insert(all.end(), args.begin(), args.end());
      CheckUsageError(all, "must be UTF-8 text, got '");
      CheckUsageError(all, "caf\\xe9");
    }
  }
  CheckUsageError({"run", "true", "\xc3"}, "argument 3 must be UTF-8 text, got '\\xc3'");
}

TEST_CASE("the page's address is checked before anything begins") {
  for (const char* command : {"train", "resume", "run"}) {
    CAPTURE(command);
    const std::string word = std::string(command) == "run" ? "true" : "runs/none";
    std::vector<std::string> args{command, "--http", "127.0.0.1"};
    if (std::string(command) != "train") args.push_back(word);
    CheckUsageError(args, "--http: 127.0.0.1: expected HOST:PORT");
    args[2] = "::1:8099";
    CheckUsageError(args, "brackets around an address of IPv6, [::1]:8080");
    for (const char* beyond : {"0.0.0.0:0", "127.example.org:0", "[::]:0", "[fd00::2]:80"}) {
      args[2] = beyond;
      CheckUsageError(args, "clear text");
    }
  }
}

TEST_CASE("without a terminal there is a page only if one is asked for") {
  const TempFolder folder;
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.end(),
                {"--serial", "--steps", "1", "--force", "--run-dir", folder.path() + "/run"});
    return Pando(Tiny(std::move(more)));
  };
  CHECK(!Contains(train({}).output, "page"));
  CHECK(!Contains(train({"--http", "off"}).output, "page"));
  const Outcome shown = train({"--http", "127.0.0.1:0"});
  CHECK(shown.exit_code == kExitCompleted);
  CHECK(Contains(shown.output, "pando: page: http://127.0.0.1:"));
  CHECK(Contains(shown.output, "/#token="));
  for (const std::string host : {"[::1]", "localhost", "127.0.0.2"})
    CHECK(Contains(train({"--http", host + ":0"}).output, "pando: page: http://" + host + ":"));
  const UniqueFd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  REQUIRE(bind(taken.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0);
  REQUIRE(listen(taken.get(), 1) == 0);
  REQUIRE(getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
  const Outcome refused = train({"--http", fmt::format("127.0.0.1:{}", ntohs(address.sin_port))});
  CHECK(refused.exit_code != kExitCompleted);
  CHECK(Contains(refused.output, "cannot listen at 127.0.0.1:"));
}

TEST_CASE("a run's folder is its owner's alone, and an exported file is as the umask says") {
  namespace fs = std::filesystem;
  const TempFolder folder;
  const std::string run = folder.path() + "/run";
  const mode_t before = umask(022);
  const Outcome trained =
      Pando(Tiny({"--workers", "1", "--servers", "1", "--steps", "4", "--snapshot-every", "2",
                  "--timeline", folder.File("trace"), "--run-dir", run}));
  const Outcome exported = Pando({"export", run, folder.File("weights.safetensors")});
  umask(before);
  REQUIRE_MESSAGE(trained.exit_code == kExitCompleted, trained.output);
  REQUIRE_MESSAGE(exported.exit_code == kExitCompleted, exported.output);
  CHECK(fs::status(run).permissions() == fs::perms::owner_all);
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    CAPTURE(entry.path().string());
    const auto others = fs::perms::group_all | fs::perms::others_all;
    CHECK((entry.status().permissions() & others) == fs::perms::none);
  }
  for (const char* name : {"weights.safetensors", "trace"})
    CHECK(fs::status(folder.File(name)).permissions() == fs::perms(0644));
}

TEST_CASE("a token file that others may read or write is refused by name") {
  const TempFolder folder;
  std::ofstream(folder.File("job.toml")) << "";
  const std::string path = folder.File("token");
  const std::vector<std::string> view{"view", folder.path(), "--token-file", path};
  std::ofstream(path) << "0123456789abcdef\n";
  for (const mode_t mode : {0644, 0640, 0602, 0660}) {
    REQUIRE(chmod(path.c_str(), mode) == 0);
    CheckUsageError(view, path + " is a secret key that others may read");
  }
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
  CheckUsageError(view, "all users may write to " + folder.path());
  REQUIRE(chmod(folder.path().c_str(), 0700) == 0);
  for (const char* token : {"0123456789abcde", "0123456789abcdef#", "0123456789abc%41", ""}) {
    std::ofstream(path) << token << "\n";
    CheckUsageError(view, "expected one line of at least 16 letters, digits and -._~+/=");
  }
  if (geteuid() == 0) {
    std::ofstream(path) << "0123456789abcdef\n";
    REQUIRE(chown(path.c_str(), 65532, static_cast<gid_t>(-1)) == 0);
    CheckUsageError(view, path + " belongs to user 65532");
  }
}

TEST_CASE("every flag of the table is a flag of train") {
  const std::string help = Pando({"train", "--help"}).output;
  for (const JobKey& key : JobKeys()) {
    const std::string alias = key.flag_alias.empty() ? "" : "," + key.flag_alias;
    if (!key.flag.empty()) CHECK(help.find("  " + key.flag + alias + " ") != std::string::npos);
  }
}

TEST_CASE("a flag's help says what its value is, and the default as the flag takes it") {
  const std::string help = Pando({"train", "--help"}).output;
  // Returns the flag's entry, up to the next flag.
  const auto entry = [&](const std::string& flag) {
    const size_t at = help.find("  " + flag + " ");
    REQUIRE(at != std::string::npos);
    return help.substr(at + 2, help.find("\n  --", at) - at - 2);
  };
  CHECK(entry("--device").starts_with("--device NAME "));
  CHECK(entry("--device").find("[auto]") != std::string::npos);
  CHECK(entry("--snapshot-best").starts_with("--snapshot-best true|false "));
  CHECK(entry("--activation-checkpointing").starts_with("--activation-checkpointing true|false\n"));
  CHECK(entry("--activation-checkpointing").find("[false]") != std::string::npos);
  CHECK(entry("--augment").starts_with("--augment NAME,NAME "));
  CHECK(entry("--optimizer").find("[sgd]") != std::string::npos);
  CHECK(entry("--data").starts_with("--data PATH "));
  CHECK(entry("--run-dir").starts_with("--run-dir PATH "));
  CHECK(entry("--timeline-steps").starts_with("--timeline-steps A:B "));
  CHECK(entry("--steps").starts_with("--steps N "));
  CHECK(entry("--lr").starts_with("--lr X "));
  CHECK(help.find("[[]]") == std::string::npos);
}

TEST_CASE("wrong words on the command line suggest the right ones") {
  CheckUsageError({"trian"}, "unknown command 'trian'; did you mean 'train'?");
  CheckUsageError({"train", "--global-bach", "64"},
                  "unknown flag '--global-bach'; did you mean '--global-batch'?");
  CheckUsageError({"train", "--global-bach=64"}, "did you mean '--global-batch'?");
  CheckUsageError({"worker", "--joim", "tcp://127.0.0.1:1"}, "--join");
  CheckUsageError({"train", "--set", "optimizer.momentm=0.8"},
                  "did you mean 'optimizer.momentum'?");
  CheckUsageError({"train", "--set", "train.steps"}, "train.steps must be a whole number");
  CheckUsageError({"train", "--epochs", "1", "--steps", "1"}, "both say how long");
  CheckUsageError({"train", "--micro-batches", "256"}, "does not fit train.global_batch = 128",
                  /*earlier_lines_max=*/1);
  CheckUsageError({"train", "no-such-job.toml"}, "cannot read no-such-job.toml");
  CheckUsageError({"server"}, "--join");
  CheckUsageError({"server", "--join", "nowhere"}, "tcp://HOST:PORT");
  CheckUsageError({"server", "--join", "tcp://127.0.0.1:1", "--bind", "tcp://0.0.0.0:0"},
                  "--insecure");
  CheckUsageError({"worker", "--join", "tcp://127.0.0.1:1", "--device", "gpu"}, "cpu");
  CheckUsageError({"data", "inspect", "--foo"}, "unknown flag '--foo'; see pando data inspect");
  CheckUsageError({"data", "inspekt"}, "unknown command 'inspekt'; did you mean 'inspect'?");
  CheckUsageError({"train", "--lr", "1", "--lr", "2"}, "--lr is given twice");
}

TEST_CASE("flags and keys of other programs point to ours") {
  CheckUsageError({"train", "--learning-rate", "1"},
                  "unknown flag '--learning-rate'; here it is '--lr'");
  CheckUsageError({"train", "--batch-size=64"}, "here it is '--global-batch'");
  CheckUsageError({"train", "--set", "optimizer.learning_rate=1"}, "here it is 'optimizer.lr'");
}

TEST_CASE("a dry run prints a job file with its plan and trains nothing") {
  TempFolder temp;
  const std::string run_dir = temp.path() + "/run";
  const Outcome outcome = Pando(Tiny(
      {"--global-batch", "32", "--set", "optimizer.beta1=0.8", "--dry-run", "--run-dir", run_dir}));
  CAPTURE(outcome.output);
  REQUIRE(outcome.exit_code == kExitCompleted);
  CHECK(outcome.output.find("# 4 steps of 32 samples") != std::string::npos);
  CHECK(outcome.output.find("conv1.weight") != std::string::npos);
  CHECK(Contains(outcome.output, " test samples, 10 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9\n"));
  CHECK_FALSE(std::filesystem::exists(run_dir));
  Result<Job> job = ParseJobText(outcome.output, "dry run");
  REQUIRE_MESSAGE(job.ok(), job.status().message());
  CHECK(job->global_batch == 32);
  CHECK(job->optimizer.beta1 == 0.8);
  CHECK(job->run_dir == run_dir);
}

TEST_CASE("a run says at its start what it learns from, and what a table lacks") {
  TempFolder temp;
  std::string rows = "id,x,label\n";
  for (int row = 0; row < 40; ++row)
    rows += "1234567890123456789," + std::to_string(row % 5) + (row % 2 == 0 ? ",a\n" : ",b\n");
  const std::string table = temp.path() + "/table.csv";
  REQUIRE(WriteFileAtomically(table, rows).ok());
  const Outcome outcome =
      Pando({"train", "--serial", "--model", "mlp", "--dataset", "csv", "--data", table, "--label",
             "label", "--global-batch", "8", "--micro-batches", "2", "--epochs", "1", "--run-dir",
             temp.path() + "/run"});
  CAPTURE(outcome.output);
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(Contains(outcome.output, "csv: 32 training samples, 8 test samples, 2 classes: a, b\n"));
  CHECK(Contains(outcome.output, "column id: constant in the training rows except for rounding"));
  const Outcome inspected = Pando({"data", "inspect", table, "--label", "label", "--missing", "x"});
  CHECK(inspected.exit_code == kExitUsage);
  CHECK(Contains(inspected.output, "category"));
}

TEST_CASE("data that is not there is one clear line") {
  TempFolder temp;
  const Outcome outcome = Pando({"train", "--dataset", "mnist", "--data", temp.path() + "/none"});
  CAPTURE(outcome.output);
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(outcome.output.find(temp.path() + "/none") != std::string::npos);
}

TEST_CASE("an existing run is not overwritten") {
  TempFolder temp;
  Result<std::string> none = ReadTextFile(temp.path() + "/job.toml");
  REQUIRE_FALSE(none.ok());
  REQUIRE(WriteFileAtomically(temp.path() + "/job.toml", "").ok());
  CheckUsageError(Tiny({"--run-dir", temp.path()}), "--force");
}

TEST_CASE("a folder of a run that is not completed is said to be one that can go on") {
  TempFolder temp;
  REQUIRE(WriteFileAtomically(temp.path() + "/scheduler.db", "").ok());
  CheckUsageError(Tiny({"--run-dir", temp.path()}), "pando resume " + temp.path());
}

TEST_CASE("a flag that is true or false needs no word") {
  const Outcome outcome = Pando(Tiny({"--dry-run", "--snapshot-best", "--seed", "7"}));
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(outcome.output.find("\nbest = true\n") != std::string::npos);
  CHECK(outcome.output.find("\nseed = 7\n") != std::string::npos);
  CHECK(Pando(Tiny({"--dry-run", "--snapshot-best", "false"})).output.find("\nbest = false\n") !=
        std::string::npos);
}

TEST_CASE("a scheduler that cannot listen leaves the folder as it is") {
  TempFolder temp;
  const std::string run = temp.path() + "/run";
  std::vector<std::string> train = Tiny({"--serial", "--steps", "3", "--run-dir", run});
  REQUIRE(Pando(train).exit_code == kExitCompleted);
  CheckUsageError(
      {"scheduler", "--force", "--run-dir", run, "--bind", "tcp://203.0.113.1:7070", "--insecure"},
      "this machine has no such address", /*earlier_lines_max=*/2);
  CHECK(std::filesystem::exists(run + "/final.safetensors"));
  const Outcome stop = Pando({"stop", run});
  CHECK(stop.exit_code == kExitUnreached);
  CHECK(stop.output.find("has ended: completed after 3 steps") != std::string::npos);
}

TEST_CASE("an unknown command is named, not the flags after it") {
  CheckUsageError({"trian", "--epochs", "3"}, "unknown command 'trian'; did you mean 'train'?");
  CHECK(Pando({"help", "plan"}).output.find("pando plan plan") == std::string::npos);
}

TEST_CASE("a host that is not known is called that") {
  const Outcome outcome =
      Pando({"status", "--join", "tcp://no-such-host.invalid:7070", "--start-timeout", "0.2"});
  CHECK(outcome.exit_code == kExitUnreached);
  CHECK(outcome.output.find("the host 'no-such-host.invalid' has no address") != std::string::npos);
}

TEST_CASE("servers that other machines could not reach are not started") {
  const std::string join = "tcp://10.77.0.1:7070";
  CheckUsageError({"node", "--join", join}, "or --insecure if the network is private");
  CheckUsageError({"server", "--join", join, "--bind", "tcp://127.0.0.1:0"},
                  "cannot be reached by the run's processes on other machines");
}

TEST_CASE("a command for a run takes its folder or its endpoint") {
  TempFolder temp;
  CheckUsageError({"status"}, "give the run's folder, or --join ENDPOINT");
  CheckUsageError({"stop", temp.path()}, "holds no run that a scheduler has led");
  CheckUsageError({"drain", temp.path()}, "give the process to drain");
  CheckUsageError({"snapshot", temp.path(), "--join", "tcp://127.0.0.1:7070"}, "and not both");
}

}  // namespace
}  // namespace pando
