#include "job/run_plan.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// A separate working directory, with a folder beside it.
class Workplace {
 public:
  Workplace() : before_(fs::current_path()) {
    fs::create_directories(temp_.path() + "/here");
    fs::current_path(temp_.path() + "/here");
  }
  ~Workplace() { fs::current_path(before_); }
  Workplace(const Workplace&) = delete;

  void PutIdxFiles(const std::string& folder) const {
    fs::create_directories(folder);
    for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                             "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
      std::ofstream(folder + "/" + name) << "x";
    }
  }

 private:
  fs::path before_;
  TempFolder temp_;
};

Job Choose(const std::vector<JobDraft::Override>& overrides, bool expects_notice) {
  JobDraft draft;
  REQUIRE(draft.AddOverrides(overrides).ok());
  CHECK(ChooseData(&draft).empty() != expects_notice);
  Result<Job> job = draft.Finish();
  REQUIRE(job.ok());
  return *job;
}

TEST_CASE("without any data around, synthetic-digits are drawn, and it is said") {
  Workplace workplace;
  CHECK(Choose({}, true).dataset == "synthetic-digits");
}

TEST_CASE("MNIST is found in data and in the shared data, in this order") {
  Workplace workplace;
  workplace.PutIdxFiles("../shared/data/mnist");
  CHECK(Choose({}, true).data_path == "../shared/data/mnist");
  workplace.PutIdxFiles("data/mnist");
  CHECK(Choose({}, true).data_path == "data/mnist");
  CHECK(Choose({}, true).dataset == "mnist");
  CHECK(Choose({{"data.name", "mnist", "--dataset"}}, true).data_path == "data/mnist");
}

TEST_CASE("what the user says is not second-guessed") {
  Workplace workplace;
  workplace.PutIdxFiles("data/mnist");
  CHECK(Choose({{"data.name", "synthetic-digits", "--dataset"}}, false).data_path.empty());
  CHECK(Choose({{"data.name", "fashion-mnist", "--dataset"}}, false).dataset == "fashion-mnist");
  const Job job = Choose({{"data.path", "elsewhere", "--data"}}, false);
  CHECK(job.dataset == "mnist");
  CHECK(job.data_path == "elsewhere");
}

TEST_CASE("outer steps that diverge one version late are named before the run") {
  Job job;
  job.dataset = "synthetic-digits";
  job.model = "mlp";
  job.steps = 1;
  job.local_steps = 2;
  job.optimizer = {.lr = 0.7, .momentum = 0.9, .nesterov = true};
  const auto notices = [&] {
    const Result<OpenedJob> opened = OpenedJob::Open(job);
    REQUIRE(opened.ok());
    return opened->notices;
  };
  CHECK(notices().empty());
  job.staleness = 1;
  REQUIRE(notices().size() == 1);
  CHECK(notices()[0].find("diverge at optimizer.lr 0.7") != std::string::npos);
  job.optimizer.lr = 0.5;
  job.optimizer.momentum = 0.3;
  CHECK(notices().empty());
}

}  // namespace
}  // namespace pando
