// Heads of HTTP requests that strangers send to the page.
#include <string_view>

#include "common/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"
#include "view/request_head.h"

namespace pando {

std::vector<std::string> FuzzSeeds() {
  return {"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123\r\n\r\n",
          "POST /api/stop HTTP/1.1\r\nContent-Length: 10\r\nX-Pando: 1\r\n\r\n",
          "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  const std::string_view head = TextIn(data, size);
  if (!FindFault(head).empty()) return 0;
  // Any reader finds the same lines, the same end, and at most one length.
  PANDO_CHECK(head.ends_with("\r\n\r\n") && head.find("\r\n\r\n") == head.size() - 4);
  int length_count = 0;
  for (size_t i = 0; i < head.size(); ++i) {
    const bool is_end = head[i] == '\n';
    PANDO_CHECK(is_end == (i > 0 && head[i - 1] == '\r'));
    PANDO_CHECK(!is_end || i + 1 == head.size() || (head[i + 1] != ' ' && head[i + 1] != '\t'));
    if (!is_end) continue;
    const std::string_view rest = head.substr(i + 1);
    for (const std::string_view name : {"Content-Length:", "Transfer-Encoding:"})
      length_count += rest.starts_with(name) ? 1 : 0;
  }
  PANDO_CHECK(length_count <= 1);
  return 0;
}
