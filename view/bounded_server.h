// BoundedServer is an HTTP server of httplib that reads a bounded number of bytes for each request.
// WebServer uses it.
#pragma once

#include <httplib.h>

#include <chrono>
#include <cstddef>

namespace pando {

// httplib reads lines, headers and bodies of chunks without a bound, before it calls a handler.
// This server ends the connection of a request with more bytes, or of one that takes longer. A
// connection has one request: a body that is not read, or whose end is uncertain, never becomes
// another request. Threads: httplib's.
class BoundedServer : public httplib::Server {
 public:
  // The bound of line, headers and body. A browser's request has about 1 kB.
  static constexpr size_t kRequestBytesMax = 64 << 10;
  static constexpr std::chrono::seconds kRequestMax{10};

 private:
  bool process_and_close_socket(socket_t socket) override;
};

}  // namespace pando
