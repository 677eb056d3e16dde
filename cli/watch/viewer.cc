#include "cli/watch/viewer.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "common/text.h"

namespace pando {

Result<WebOptions> ParseHttp(const std::string& text, bool is_insecure) {
  const size_t colon = text.rfind(':');
  WebOptions options;
  options.host = text.substr(0, colon);
  const std::optional<uint16_t> port =
      colon == std::string::npos ? std::nullopt : ParseNumber<uint16_t>(text.substr(colon + 1));
  if (!port || options.host.empty()) {
    return InvalidArgument(fmt::format(
        "--http {}: expected HOST:PORT, such as 127.0.0.1:8080 (port 0: a free one)", text));
  }
  options.port = *port;
  const bool is_local = options.host.starts_with("127.") || options.host == "localhost";
  if (is_local || is_insecure) return options;
  return InvalidArgument(fmt::format(
      "--http {}: the page and its token would cross the network in clear text; listen on "
      "127.0.0.1 behind ssh -L or a proxy with TLS, or start pando view with --insecure",
      text));
}

void AddHttpOption(CLI::App& command, std::string* http) {
  AddOption(command, "--http HOST:PORT", http,
            "serve a page that shows the run, as pando view does: 127.0.0.1:0 takes a free port")
      ->group("Processes and run folder");
}

Result<std::unique_ptr<ProcessGroup>> StartViewer(const std::string& http, const Job& job,
                                                  const std::string& keys_folder) {
  auto viewer = std::make_unique<ProcessGroup>([](const ProcessExit&) {});
  if (http.empty()) return viewer;
  ProcessSpec spec{.name = "view",
                   .title = "the viewer",
                   .args = {"view", job.run_dir, "--http", http, "--beside-run"},
                   .log_path = RunFolder::Open(job.run_dir).LogPath("view"),
                   .keeps_stderr = true};
  if (!keys_folder.empty()) spec.args.insert(spec.args.end(), {"--keys", keys_folder});
  PANDO_RETURN_IF_ERROR(viewer->Start(spec));
  return viewer;
}

}  // namespace pando
