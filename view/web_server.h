// WebServer serves the page of `pando view`, its stream of events, and Prometheus' text, over HTTP.
// Only requests with the token are answered, except for the page's files, which hold nothing of a
// run. Commands are taken by POST alone, and only from the page itself (docs/viewing.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/status.h"

namespace prometheus {
class Registry;
}

namespace pando {

class RunWatch;

struct WebOptions {
  std::string host;
  int port = 0;       // 0: a free one
  std::string token;  // what requests show
  // "/runs/x": where a proxy shows the page, whether it leaves that in its requests or not.
  std::string base_path = "";
};

// Threads: Start begins some; they end with it.
class WebServer {
 public:
  // Both outlive the server.
  WebServer(std::vector<std::unique_ptr<RunWatch>>& runs, const prometheus::Registry& registry);
  ~WebServer();

  // kUnavailable if it cannot listen there. Returns the page's address, with its token.
  Result<std::string> Start(const WebOptions& options);

 private:
  class Impl;  // keeps the library out of this header
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
