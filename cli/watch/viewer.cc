#include "cli/watch/viewer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/output.h"
#include "common/text.h"

namespace pando {
namespace {

constexpr const char* kHttpOff = "off";
constexpr const char* kHttpDefault = "127.0.0.1:0";
constexpr Micros kStartMax = std::chrono::seconds(30);  // for a viewer's start
constexpr size_t kReportBytesMax = 4096;

// Reads a starting viewer's report from the pipe: its page's address, or why it has none.
std::string ReadReport(int fd) {
  std::string report;
  const Micros deadline = SteadyNow() + kStartMax;
  while (report.size() < kReportBytesMax && !report.ends_with('\n')) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyNow());
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    const int count = left.count() <= 0 ? 0 : poll(&readable, 1, static_cast<int>(left.count()));
    if (count < 0 && errno == EINTR) continue;
    std::array<char, kReportBytesMax> part;
    const ssize_t bytes = count <= 0 ? 0 : read(fd, part.data(), part.size());
    if (bytes <= 0) break;
    report.append(part.data(), static_cast<size_t>(bytes));
  }
  if (report.ends_with('\n')) report.pop_back();
  return report;
}

// Starts the viewer, and returns its page's address.
Result<std::string> StartPage(ProcessSpec spec, ProcessGroup& viewer) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    return Internal(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  spec.inherited_fd = out.get();
  spec.args.insert(spec.args.end(), {"--report-to", std::to_string(out.get())});
  PANDO_RETURN_IF_ERROR(viewer.Start(spec));
  out = UniqueFd();
  std::string report = ReadReport(in.get());
  if (report.starts_with("http://")) return report;
  viewer.KillAll();
  if (report.empty()) report = fmt::format("the viewer does not start; see {}", spec.log_path);
  return Unavailable(report);
}

}  // namespace

Result<WebOptions> ParseHttp(const std::string& text, bool is_insecure) {
  const Result<Endpoint> endpoint = ParseEndpoint("tcp://" + text);
  if (!endpoint.ok()) {
    const bool lacks_brackets = std::ranges::count(text, ':') > 1 && !text.starts_with('[');
    return InvalidArgument(fmt::format(
        "{}: expected HOST:PORT, such as 127.0.0.1:8080 (port 0: a free one){}", Printable(text),
        lacks_brackets ? ", or, with brackets around an address of IPv6, [::1]:8080" : ""));
  }
  const WebOptions options{.host = endpoint->host, .port = endpoint->port};
  const bool is_local = IsLoopbackAddress(options.host) || options.host == "localhost";
  if (is_local || is_insecure) return options;
  return InvalidArgument(fmt::format(
      "{}: the page and its token would cross the network in clear text; listen on 127.0.0.1 "
      "behind ssh -L or a proxy with TLS, or start pando view with --insecure",
      Printable(text)));
}

void AddHttpOption(CLI::App& command, std::string* http) {
  const Flag::Rule check([](const std::string& text) {
    if (text == kHttpOff) return std::string();
    const Status status = ParseHttp(text, /*is_insecure=*/false).status();
    return status.ok() ? std::string() : status.message();
  });
  AddOption(command, "--http HOST:PORT", http,
            fmt::format("where a page shows the run, as pando view does, or {0} [{1}: a free port, "
                        "if standard error is a terminal; else {0}]",
                        kHttpOff, kHttpDefault),
            check)
      .Group("Processes and run folder");
}

Result<std::unique_ptr<ProcessGroup>> StartViewer(const std::string& http, const Job& job,
                                                  const std::string& keys_folder) {
  auto viewer = std::make_unique<ProcessGroup>([](const ProcessExit&) {});
  const bool is_default = http.empty();
  if (http == kHttpOff || (is_default && isatty(STDERR_FILENO) == 0)) return viewer;
  ProcessSpec spec{.name = "view",
                   .title = "the viewer",
                   .args = {"view", job.run_dir, "--http", is_default ? kHttpDefault : http},
                   .log_path = RunFolder::Open(job.run_dir).LogPath("view")};
  if (!keys_folder.empty()) spec.args.insert(spec.args.end(), {"--keys", keys_folder});
  const Result<std::string> address = StartPage(std::move(spec), *viewer);
  if (address.ok()) {
    Say("pando: page: {}\n", *address);
  } else if (is_default) {
    Say("pando: no page shows this run: {}; --http off asks for none\n",
        address.status().message());
  } else {
    return address.status();
  }
  return viewer;
}

}  // namespace pando
