// The viewer that `pando train`, `run` and `resume` start beside a run (--http).
#pragma once

#include <memory>
#include <string>

#include "cli/commands.h"
#include "node/supervisor.h"
#include "view/web_server.h"

namespace pando {

// "127.0.0.1:8080". An address beyond this machine is an error unless `is_insecure`.
Result<WebOptions> ParseHttp(const std::string& text, bool is_insecure);

// --http, of a command that trains: an address that ParseHttp accepts, "off", or empty by default.
void AddHttpOption(CLI::App& command, std::string* http);

// Starts `pando view` of a run, says where its page is, and returns what ends it. By default there
// is one if standard error is a terminal, and a warning if it does not start. Where `http` is an
// address that is an error.
Result<std::unique_ptr<ProcessGroup>> StartViewer(const std::string& http, const Job& job,
                                                  const std::string& keys_folder);

}  // namespace pando
