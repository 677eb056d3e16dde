// `pando data`: inspects, checks and fetches data sets.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/data_fetch.h"
#include "cli/data_inspect.h"
#include "common/atomic_file.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "common/text.h"
#include "data/dataset.h"
#include "data/picture_list.h"

namespace pando {
namespace {

struct InspectOptions {
  std::string path;
  std::string sheet = "contact-sheet.png";
  std::string missing = EnumName(MissingValues::kError);
  Job job;
};

Result<Job> MakeJob(const InspectOptions& options) {
  Job job = options.job;
  job.data_path = options.path;
  job.missing = *ParseEnum<MissingValues>(options.missing);
  if (job.dataset.empty()) job.dataset = GuessDataSet(options.path);
  if (!job.dataset.empty()) return job;
  return NotFound(fmt::format(
      "{}: holds no data set that pando supports: neither idx files (MNIST), nor CIFAR's "
      ".bin files, nor one .csv file, nor folders train and val with a folder per "
      "class; --dataset says which one it should be",
      options.path));
}

Result<int> Inspect(const InspectOptions& options) {
  PANDO_ASSIGN_OR_RETURN(const Job job, MakeJob(options));
  const auto warn = [](const std::string& text) { Say("pando: {}\n", text); };
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<DataSet> data, OpenDataSet(job, warn));
  PANDO_ASSIGN_OR_RETURN(std::string text, DescribeData(*data));
  Print("{}: {}\n{}", options.path, job.dataset, text);
  if (options.sheet.empty() || !HoldsPictures(*data)) return kExitCompleted;
  PANDO_RETURN_IF_ERROR(WriteContactSheet(*data, options.sheet));
  Print("contact sheet: {}\n", options.sheet);
  return kExitCompleted;
}

struct CheckOptions {
  std::string path;
  std::string out;  // the skip list's path; empty: kSkipListDefault in the folder
  uint32_t threads = std::max(1u, std::thread::hardware_concurrency());
  bool is_forced = false;
};

// Prints up to twenty lines for a large folder, and none for a small one.
void TellProgress(uint64_t done, uint64_t all) {
  constexpr uint64_t kLines = 20, kPerLineMin = 1000;
  const uint64_t interval = std::max(all / kLines, kPerLineMin);
  if (done % interval == 0) Say("pando: checked {} of {} pictures\n", done, all);
}

// Writes the skip list. A list that exists may be part of a run, which needs it to continue.
Status WriteSkipList(const CheckOptions& options, const std::string& path,
                     const std::string& text) {
  std::error_code ignored;
  if (!options.is_forced && std::filesystem::exists(path, ignored)) {
    return AlreadyExists(
        fmt::format("{} exists, and runs may use it; give --out another file, or --force", path));
  }
  return WriteFileAtomically(path, text);
}

Result<int> Check(const CheckOptions& options) {
  PANDO_ASSIGN_OR_RETURN(PictureList list, ListPictures(options.path));
  const uint64_t all = list.train.size() + list.test.size();
  for (const std::string& line : UnreadNotices(list)) Print("{}\n", line);
  const auto tell = [&](uint64_t done) { TellProgress(done, all); };
  PANDO_ASSIGN_OR_RETURN(const std::vector<BadPicture> bad,
                         FindBadPictures(list, options.threads, tell));
  for (const BadPicture& picture : bad) Print("{}: {}\n", picture.name, picture.reason);
  if (bad.empty()) {
    Print("{}: all {} pictures can be decoded; no skip list is needed\n", options.path, all);
    return kExitCompleted;
  }
  const std::string path =
      options.out.empty() ? SkipListPath(kSkipListDefault, options.path) : options.out;
  PANDO_RETURN_IF_ERROR(WriteSkipList(options, path, SkipListText(bad)));
  const auto lost = std::ranges::count_if(list.unread, &UnreadFile::is_lost);
  Print("{}: {} of {} pictures cannot be read; train without them: --set data.skip={}\n",
        options.path, bad.size(), all + static_cast<uint64_t>(lost),
        options.out.empty() ? kSkipListDefault
                            : std::filesystem::absolute(path).lexically_normal().string());
  return kExitFailed;
}

Result<int> Fetch(FetchOptions options) {
  if (options.folder.empty()) options.folder = "data/" + options.name;
  options.tell = [](const std::string& line) { Say("pando: {}\n", line); };
  PANDO_RETURN_IF_ERROR(FetchDataSet(options));
  Print("{}\n", options.folder);
  return kExitCompleted;
}

}  // namespace

Subcommand AddDataCommand(CLI::App& app) {
  CLI::App& command =
      DeclareCommand(app, "data", "Looks at data sets and downloads them.",
                     "Examples:\n  pando data fetch cifar10\n  pando data inspect data/cifar10\n"
                     "  pando data inspect penguins.csv --label species\n"
                     "  pando data check photographs\n");

  auto inspected = std::make_shared<InspectOptions>();
  inspected->job.dataset.clear();
  CLI::App& inspect = AddPart(
      command, "inspect",
      "Says what a folder holds: samples, classes, mean and deviation; draws a contact sheet.");
  AddOption(inspect, "DIR", &inspected->path, "the folder, or a table's file").Required();
  AddOption(inspect, "--dataset NAME", &inspected->job.dataset,
            "the data set, if the files do not show it: " + Joined(DataSetNames()));
  AddOption(inspect, "--label COLUMN", &inspected->job.label, "a csv's column of classes");
  AddOption(inspect, "--columns COLUMN,COLUMN", &inspected->job.columns,
            "a table's columns; all but the label")
      .TakesList();
  AddOption(inspect, "--missing POLICY", &inspected->missing,
            "what a table's missing values become: error, mean, category [error]")
      .Check(AnyWordFrom(std::vector<std::string>(kEnumNames<MissingValues>.begin(),
                                                  kEnumNames<MissingValues>.end())));
  AddOption(inspect, "--resize N", &inspected->job.resize, "side that pictures are resized to");
  AddOption(inspect, "--skip FILE", &inspected->job.skip_list,
            "skip list of an image folder (pando data check)");
  AddOption(inspect, "--sheet FILE.png", &inspected->sheet,
            fmt::format("where the contact sheet goes; empty: nowhere [{}]", inspected->sheet));

  auto checked = std::make_shared<CheckOptions>();
  CLI::App& check = AddPart(
      command, "check",
      "Decodes every picture of an image folder. Lists those that cannot be read, writes them "
      "to a skip list (the job key data.skip), and then exits with 1.");
  AddOption(check, "FOLDER", &checked->path, "the image folder").Required();
  AddOption(check, "--out FILE", &checked->out,
            fmt::format("the skip list to write [FOLDER/{}]", kSkipListDefault));
  AddOption(check, "--threads N", &checked->threads,
            fmt::format("threads that decode [{}]", checked->threads))
      .Check(InRange(1, 1024));
  AddFlag(check, "--force", &checked->is_forced, "replace an existing skip list");

  auto fetched = std::make_shared<FetchOptions>();
  CLI::App& fetch =
      AddPart(command, "fetch",
              "Downloads a data set, checks its SHA-256, and goes on where a try broke off.");
  AddOption(fetch, "NAME", &fetched->name, Joined(FetchableDataSets())).Required();
  AddOption(fetch, "--dir FOLDER", &fetched->folder, "where to [data/NAME]");
  AddOption(fetch, "--mirror URL", &fetched->mirror, "another place of the same files");
  return [&inspect, &check, inspected, checked, fetched] {
    if (IsChosen(check)) return Check(*checked);
    return IsChosen(inspect) ? Inspect(*inspected) : Fetch(*fetched);
  };
}

}  // namespace pando
