#include "view/request_head.h"

#include <doctest/doctest.h>

namespace pando {
namespace {

constexpr const char* kLine = "POST /api/stop HTTP/1.1\r\n";

std::string FindIn(const std::string& headers, const std::string& line = kLine) {
  return FindFault(line + headers + "\r\n");
}

TEST_CASE("heads of browsers, proxies and Prometheus have no fault") {
  for (const char* headers :
       {"", "Host: 127.0.0.1:8080\r\nAccept: */*\r\n", "Content-Length: 0\r\n",
        "content-length:10 \t\r\n", "Transfer-Encoding: chunked\r\n",
        "TRANSFER-ENCODING:Chunked\r\n",
        "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.2\r\n", "X-Empty:\r\n",
        "Sec-Ch-Ua: \"Chromium\";v=\"1\", \"\"\r\n", "X-Name: caf\xc3\xa9\tand more\r\n"}) {
    CAPTURE(headers);
    CHECK(FindIn(headers) == "");
  }
  for (const char* line : {"GET / HTTP/1.0\r\n", "M-SEARCH /a?b=c%20d#e HTTP/1.1\r\n"})
    CHECK(FindIn("", line) == "");
}

TEST_CASE("a first line that is no request is a fault") {
  for (const char* line :
       {"\r\n", "GET\r\n", "GET /\r\n", "GET / \r\n", "GET  / HTTP/1.1\r\n", "GET / HTTP/1.1 \r\n",
        " GET / HTTP/1.1\r\n", "GET / a HTTP/1.1\r\n", "GET /\ta HTTP/1.1\r\n",
        "GET / HTTP/2.0\r\n", "GET / HTTP/1.1\n", "GET / http/1.1\r\n", "G(T / HTTP/1.1\r\n",
        "GET /\xc3\xa9 HTTP/1.1\r\n", "GET http://x/ HTTP/1.1\r\n", "GET * HTTP/1.1\r\n",
        "GET /\x7f HTTP/1.1\r\n"}) {
    CAPTURE(line);
    CHECK(FindIn("Host: x\r\n", line) == "the first line is not METHOD /PATH HTTP/1.1");
  }
}

TEST_CASE("a header that readers take differently is a fault") {
  using std::string_literals::operator""s;
  for (const std::string& headers :
       {"nothing\r\n"s, ": 1\r\n"s, "Content-Length : 1\r\n"s, "Content Length: 1\r\n"s,
        "X: a\r\n b\r\n"s, "X:\r\n\tContent-Length: 1\r\n"s, " X: a\r\n"s, "X: a\n"s,
        "X: a\nContent-Length: 1\r\n"s, "X: a\rContent-Length: 1\r\n"s, "X: a\0b\r\n"s,
        "X\0: b\r\n"s, "X: \x0b\r\n"s, "X: \x1b[2J\r\n"s, "X: \x7f\r\n"s, "\xc3\xa9: 1\r\n"s}) {
    CAPTURE(headers);
    CHECK(FindIn(headers) == "a header is not NAME: VALUE on one line that ends with CR and LF");
  }
}

TEST_CASE("lengths that contradict each other, or are none, are a fault") {
  for (const char* value : {"", " ", "-1", "+1", "0x10", "1e3", "1.0", "%31", "1,1", "1, 2", "1 2",
                            "18446744073709551616", "\xd9\xa1"}) {
    CAPTURE(value);
    CHECK(FindIn(std::string("Content-Length: ") + value + "\r\n") ==
          "Content-Length is no number of bytes");
  }
  CHECK(FindIn("Content-Length: 1\r\nCONTENT-LENGTH: 1\r\n") ==
        "two headers are named content-length");
  CHECK(FindIn("Host: a\r\nhost: b\r\n") == "two headers are named host");
  CHECK(FindIn("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") ==
        "two headers are named transfer-encoding");
  for (const char* both : {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                           "Transfer-Encoding: identity\r\nContent-Length: 5\r\n"})
    CHECK(FindIn(both) == "Content-Length and Transfer-Encoding say two lengths");
  for (const char* value : {"", "identity", "gzip, chunked", "chunked, chunked", "xchunked",
                            "%63hunked", "\"chunked\""}) {
    CAPTURE(value);
    CHECK(FindIn(std::string("Transfer-Encoding: ") + value + "\r\n") ==
          "Transfer-Encoding is not the chunked one of HTTP/1.1");
  }
  CHECK(FindIn("Transfer-Encoding: chunked\r\n", "POST / HTTP/1.0\r\n") ==
        "Transfer-Encoding is not the chunked one of HTTP/1.1");
}

}  // namespace
}  // namespace pando
