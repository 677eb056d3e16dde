// WebServer serves the page of `pando view`, its stream of events, and Prometheus' text, over HTTP.
// Requests must have the token, except those for the page's files, which show no run's data.
// It takes commands only by POST, and only from the page itself (docs/viewing.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/result.h"

namespace prometheus {
class Registry;
}

namespace pando {

class RunWatch;

struct WebOptions {
  std::string host;
  int port = 0;       // 0: a free one
  std::string token;  // the token that requests must show
  // The path of the page at a proxy, such as "/runs/x". The proxy's requests may lack it.
  std::string base_path = "";
};

// Threads: Start starts some; the destructor ends them.
class WebServer {
 public:
  // Both arguments outlive the server.
  WebServer(std::vector<std::unique_ptr<RunWatch>>& runs, const prometheus::Registry& registry);
  ~WebServer();

  // Listens. Returns the page's address, with its token. kUnavailable: it cannot listen there.
  Result<std::string> Start(const WebOptions& options);

 private:
  class Impl;  // keeps the library out of this header
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
