// `pando data`: inspect and fetch.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/data_fetch.h"
#include "cli/data_inspect.h"
#include "common/exit_codes.h"
#include "common/text.h"
#include "data/dataset.h"

namespace pando {
namespace {

struct InspectOptions {
  std::string path;
  std::string sheet = "contact-sheet.png";
  Job job;
};

Result<Job> JobOf(const InspectOptions& options) {
  Job job = options.job;
  job.data_path = options.path;
  if (job.dataset.empty()) job.dataset = GuessDataSet(options.path);
  if (!job.dataset.empty()) return job;
  return NotFound(fmt::format(
      "{}: holds no data set that pando supports: neither idx files (MNIST), nor CIFAR's "
      ".bin files, nor one .csv file, nor folders train and val with a folder per "
      "class; --dataset says which one it should be",
      options.path));
}

int Inspect(const InspectOptions& options) {
  const Result<Job> job = JobOf(options);
  if (!job.ok()) return Report(job.status());
  const auto warn = [](const std::string& text) { fmt::print(stderr, "pando: {}\n", text); };
  Result<std::unique_ptr<DataSet>> data = OpenDataSet(*job, warn);
  if (!data.ok()) return Report(data.status());
  Result<std::string> text = DescribeData(**data, job->bad_pictures_max);
  if (!text.ok()) return Report(text.status());
  fmt::print("{}: {}\n{}", options.path, job->dataset, *text);
  if (options.sheet.empty() || !HoldsPictures(**data)) return kExitCompleted;
  if (Status s = WriteContactSheet(**data, options.sheet); !s.ok()) return Report(s);
  fmt::print("contact sheet: {}\n", options.sheet);
  return kExitCompleted;
}

int Fetch(FetchOptions options) {
  if (options.folder.empty()) options.folder = "data/" + options.name;
  options.tell = [](const std::string& line) { fmt::print(stderr, "pando: {}\n", line); };
  if (Status s = FetchDataSet(options); !s.ok()) return Report(s);
  fmt::print("{}\n", options.folder);
  return kExitCompleted;
}

}  // namespace

Subcommand AddDataCommand(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("data", "Looks at data sets and downloads them.");
  command.require_subcommand(1);

  auto inspect_options = std::make_shared<InspectOptions>();
  inspect_options->job.dataset.clear();
  CLI::App& inspect = *command.add_subcommand(
      "inspect",
      "Says what a folder holds: samples, classes, mean and deviation; draws a contact sheet.");
  inspect.add_option("DIR", inspect_options->path, "the folder, or a table's file")->required();
  inspect
      .add_option("--dataset", inspect_options->job.dataset,
                  "the data set, if the files do not show it: " + Joined(DataSetNames()))
      ->type_name("NAME");
  inspect.add_option("--resize", inspect_options->job.resize, "side that pictures are resized to")
      ->type_name("N");
  inspect
      .add_option("--bad-pictures-max", inspect_options->job.bad_pictures_max,
                  "pictures that may be replaced where they cannot be decoded [0]")
      ->type_name("N");
  inspect
      .add_option(
          "--sheet", inspect_options->sheet,
          fmt::format("where the contact sheet goes; empty: nowhere [{}]", inspect_options->sheet))
      ->type_name("FILE.png");

  auto fetch_options = std::make_shared<FetchOptions>();
  CLI::App& fetch = *command.add_subcommand(
      "fetch", "Downloads a data set, checks its SHA-256, and goes on where a try broke off.");
  fetch.add_option("NAME", fetch_options->name, Joined(FetchableDataSets()))->required();
  fetch.add_option("--dir", fetch_options->folder, "where to [data/NAME]")->type_name("FOLDER");
  fetch.add_option("--mirror", fetch_options->mirror, "another place of the same files")
      ->type_name("URL");
  command.footer(
      std::string(
          "\nExamples:\n  pando data fetch cifar10\n  pando data inspect data/cifar10\n\n") +
      kExitCodesHelp);
  return [&inspect, inspect_options, fetch_options] {
    return inspect.parsed() ? Inspect(*inspect_options) : Fetch(*fetch_options);
  };
}

}  // namespace pando
