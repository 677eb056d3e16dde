#include "bench/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include "bench/harness/report.h"
#include "bench/harness/writers.h"
#include "cli/exit_codes.h"

namespace pando::bench {

void AddOutOption(CLI::App& command, std::string* folder) {
  command.add_option("--out", *folder, "Folder for JSON, Markdown and plots; made if need be")
      ->type_name("DIR")
      ->capture_default_str();
}

OnProgress ProgressLine() {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [](size_t done, size_t all, const Point& next) {
    fmt::print(stderr, "\r\033[K{}/{} {}", done + 1, all, next.name);
    if (done + 1 == all) fmt::print(stderr, "\r\033[K");
  };
}

int Report(const Status& status) {
  fmt::print(stderr, "pando bench: {}\n", status.message());
  return ExitCodeOf(status);
}

int Finish(const Result<ResultSet>& set, const std::string& folder) {
  if (!set.ok()) return Report(set.status());
  if (Status s = WriteResults(*set, folder); !s.ok()) return Report(s);
  fmt::print("{}\nwritten to {}/; pando bench report {} makes a page of it\n", ToMarkdown(*set),
             folder, folder);
  return kExitCompleted;
}

std::function<int()> AddReport(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("report", "Makes one page of HTML of a folder of results.");
  const auto folder = std::make_shared<std::string>();
  command.add_option("DIR", *folder, "What benchmarks were given as --out")->required();
  return [folder] {
    const Result<std::string> page = WriteReport(*folder);
    if (!page.ok()) return Report(page.status());
    fmt::print("{}\n", *page);
    return kExitCompleted;
  };
}

}  // namespace pando::bench
