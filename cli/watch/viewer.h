// The viewer that `pando train`, `run` and `resume` start beside a run (--http).
#pragma once

#include <memory>
#include <string>

#include "cli/commands.h"
#include "node/supervisor.h"
#include "view/web_server.h"

namespace pando {

// Parses "127.0.0.1:8080". An address beyond this machine is an error unless `is_insecure`.
Result<WebOptions> ParseHttp(const std::string& text, bool is_insecure);

// Adds --http to a command that trains: an address that ParseHttp accepts, "off", or "" by default.
void AddHttpOption(CLI::App& command, std::string* http);

// Starts `pando view` for a run, prints where its page is, and returns an object that ends the
// viewer. By default it starts one if standard error is a terminal, and only warns if that fails.
// If `http` is an address, a failure is an error.
Result<std::unique_ptr<ProcessGroup>> StartViewer(const std::string& http, const Job& job,
                                                  const std::string& keys_folder);

}  // namespace pando
