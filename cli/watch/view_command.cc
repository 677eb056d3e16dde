// `pando view`: serves a page that shows runs, and their metrics for Prometheus.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <prometheus/registry.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/watch/viewer.h"
#include "common/atomic_file.h"
#include "common/exit_codes.h"
#include "common/hash.h"
#include "common/output.h"
#include "common/system.h"
#include "common/text.h"
#include "common/unique_fd.h"
#include "node/log.h"
#include "node/shutdown_signal.h"
#include "view/run_names.h"
#include "view/run_watch.h"
#include "view/scoped_stack_size.h"
#include "view/web_server.h"

namespace pando {
namespace {

struct ViewOptions {
  std::vector<std::string> run_dirs;
  std::string join;
  std::string keys;
  std::string http = "127.0.0.1:0";
  std::string base_path;
  std::string token_file;
  bool is_insecure = false;
  int report_fd = -1;  // a pipe of the `pando train` that started this process
};

constexpr size_t kRunsMax = 1'000;  // each run takes a thread and a few MB
constexpr const char* kNotes =
    "Prints the page's address. Other users of this machine lack its token, and cannot read the "
    "run.\n"
    "\n"
    "Examples:\n"
    "  pando view runs/first\n"
    "  pando view runs/first runs/second         two runs, their curves side by side\n"
    "  pando view --join tcp://10.0.0.1:7070     without the run's folder: no curves, no logs\n"
    "  pando view runs/first --http 127.0.0.1:8080 --token-file pando.token\n"
    "             for Prometheus: /metrics, with the token as credentials_file\n";

// Reads the token from the file; if the file does not exist, creates it with a new token.
Result<std::string> FindToken(const std::string& path) {
  const std::string drawn = HexText(NewIncarnation().value()) + HexText(NewIncarnation().value());
  if (path.empty()) return drawn;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    const mode_t before = umask(077);  // for the owner alone
    const Status written = WriteFileAtomically(path, drawn + "\n");
    umask(before);
    return written.ok() ? Result<std::string>(drawn) : written;
  }
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return FileError("read --token-file", path, errno);
  PANDO_RETURN_IF_ERROR(CheckSecretFile(path, fd.get()));
  std::array<char, 4096> bytes;
  const ssize_t count = read(fd.get(), bytes.data(), bytes.size());
  std::string token(bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  token.resize(std::min(token.find('\n'), token.size()));
  constexpr size_t kTokenMin = 16;
  // The letters of a bearer token (RFC 6750), which need no escapes in an address.
  const auto is_letter = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-._~+/=").find(c) != std::string_view::npos;
  };
  if (token.size() >= kTokenMin && std::ranges::all_of(token, is_letter)) return token;
  return InvalidArgument(fmt::format(
      "--token-file {}: expected one line of at least {} letters, digits and -._~+/=; remove the "
      "file, and pando view makes one",
      path, kTokenMin));
}

// Returns the path without a slash at its end: "/runs/x", or "" for "/".
Result<std::string> ParseBasePath(const std::string& text) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("/-._~", c) != nullptr;
  };
  if ((text.empty() || text.starts_with('/')) && std::ranges::all_of(text, is_plain))
    return text.substr(0, text.find_last_not_of('/') + 1);
  return InvalidArgument(fmt::format(
      "--base-path {}: expected a path such as /runs/x, of letters, digits, '-', '.', '_' and '~'",
      Printable(text)));
}

Result<RunSource> MakeSource(const RunAddress& address) {
  RunSource source{
      .name = address.join, .run_dir = address.run_dir, .endpoint = address.join, .find_keys = {}};
  const RunFolder folder = RunFolder::Open(address.run_dir);
  std::error_code error;
  if (!address.run_dir.empty() && !std::filesystem::exists(folder.JobPath(), error)) {
    if (error)
      return NotFound(
          fmt::format("cannot look into {}: {}; other users may where the run was started with "
                      "--shared-run-dir",
                      address.run_dir, error.message()));
    return NotFound(
        fmt::format("{} is no run folder: it has no job.toml; pando train prints its run's folder",
                    address.run_dir));
  }
  source.find_keys = [address](KeyRole role) { return FindRunKeys(address, role); };
  PANDO_RETURN_IF_ERROR(source.find_keys(KeyRole::kReader).status());
  return source;
}

Result<std::vector<RunSource>> MakeSources(const ViewOptions& options) {
  if (options.run_dirs.empty() == options.join.empty())
    return InvalidArgument("give run folders, or --join ENDPOINT, and not both");
  if (options.run_dirs.size() > kRunsMax) {
    return InvalidArgument(
        fmt::format("{} runs are given, and a viewer shows up to {}; give fewer, or the rest to "
                    "another pando view",
                    options.run_dirs.size(), kRunsMax));
  }
  std::vector<RunAddress> addresses;
  for (const std::string& run_dir : options.run_dirs)
    addresses.push_back({.run_dir = run_dir, .join = "", .keys = options.keys});
  if (!options.join.empty()) {
    PANDO_RETURN_IF_ERROR(CheckEndpoint("--join", options.join));
    addresses.push_back({.run_dir = "", .join = options.join, .keys = options.keys});
  }
  std::vector<RunSource> sources;
  for (const RunAddress& address : addresses) {
    PANDO_ASSIGN_OR_RETURN(RunSource source, MakeSource(address));
    sources.push_back(std::move(source));
  }
  const std::vector<std::string> names = NamesForFolders(options.run_dirs);
  for (size_t i = 0; i < names.size(); ++i) sources[i].name = names[i];
  return sources;
}

// Each run has a thread, and its whole stack counts in the limit below.
constexpr size_t kStackBytes = 512 << 10;

// Limits the viewer's memory, so that even a fault cannot take the memory that the run needs.
void LimitMemory(size_t run_count) {
  constexpr rlim_t kBytesMax = rlim_t{1} << 30;
  constexpr rlim_t kRunBytes = 4 << 20;
  rlimit limit{};
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, kBytesMax + run_count * kRunBytes);
  setrlimit(RLIMIT_DATA, &limit);
}

// Sends the page's address, or why there is none, to the process that started this one.
void ReportTo(int fd, const std::string& text) {
  const std::string line = text + "\n";
  (void)!write(fd, line.data(), line.size());  // if that process is gone, no report is needed
  close(fd);
}

Result<int> ServeView(const ViewOptions& options) {
  Result<WebOptions> parsed = ParseHttp(options.http, options.is_insecure);
  if (!parsed.ok()) return InvalidArgument("--http: " + parsed.status().message());
  WebOptions web = *std::move(parsed);
  PANDO_ASSIGN_OR_RETURN(web.base_path, ParseBasePath(options.base_path));
  PANDO_ASSIGN_OR_RETURN(std::vector<RunSource> sources, MakeSources(options));
  PANDO_ASSIGN_OR_RETURN(web.token, FindToken(options.token_file));
  SetUpLog({.process = "view"});
  LimitMemory(sources.size());
  const ScopedStackSize small(kStackBytes);
  ShutdownSignal shutdown;  // before threads, which inherit the blocked signals
  prometheus::Registry registry;
  std::vector<std::unique_ptr<RunWatch>> runs;
  for (RunSource& source : sources) {
    RunMetrics metrics(registry, source.name);
    runs.push_back(std::make_unique<RunWatch>(std::move(source), std::move(metrics)));
    runs.back()->Start();
  }
  WebServer server(runs, registry);
  PANDO_ASSIGN_OR_RETURN(const std::string address, server.Start(web));
  if (options.report_fd >= 0) {
    ReportTo(options.report_fd, address);
  } else {
    Print("{}\n", address);
    PANDO_RETURN_IF_ERROR(FinishOutput());
  }
  pollfd signalled{.fd = shutdown.fd(), .events = POLLIN, .revents = 0};
  while (shutdown.Take() == 0) poll(&signalled, 1, -1);
  // Threads may wait for slow clients, and nothing can be lost.
  std::quick_exit(kExitCompleted);
}

}  // namespace

Subcommand AddViewCommand(CLI::App& app) {
  auto options = std::make_shared<ViewOptions>();
  CLI::App& command =
      DeclareCommand(app, "view",
                     "Serves a page that shows runs while they go on, and afterwards: curves,\n"
                     "processes, faults, logs; and metrics for Prometheus.",
                     kNotes);
  AddOption(command, "RUN_DIR", &options->run_dirs, "the folders of runs");
  AddOption(command, "--join ENDPOINT", &options->join,
            "where the scheduler listens, if the folder is not here");
  AddKeysOption(command, &options->keys);
  AddOption(command, "--http HOST:PORT", &options->http,
            fmt::format("where the page is [{}: a free port]", options->http));
  AddOption(command, "--base-path PATH", &options->base_path,
            "the page's path behind a proxy, such as /runs/x [/]");
  AddOption(command, "--token-file FILE", &options->token_file,
            "a file with the token that requests show; it is made if it does not exist [a new one "
            "each time]");
  AddFlag(command, "--insecure", &options->is_insecure, "allow --http beyond this machine");
  AddOption(command, "--report-to", &options->report_fd, "").Group("");
  return [options] {
    Result<int> served = ServeView(*options);
    if (!served.ok() && options->report_fd >= 0)
      ReportTo(options->report_fd, served.status().message());
    return served;
  };
}

}  // namespace pando
