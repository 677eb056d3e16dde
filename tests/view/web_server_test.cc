#include "view/web_server.h"

#include <doctest/doctest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "net/zmq/keys.h"
#include "tests/contains.h"
#include "tests/temp_folder.h"
#include "view/run_watch.h"

namespace pando {
namespace {

constexpr const char* kToken = "0123456789abcdef";

Result<Keys> FindReaderKeys(KeyRole role) {
  return role == KeyRole::kReader ? Result<Keys>(Keys()) : NotFound("no admin.key");
}

// A viewer of a run folder whose run has no scheduler.
struct Viewer {
  explicit Viewer(const std::string& base_path = "") {
    std::filesystem::create_directory(folder.File("logs"));
    std::ofstream(folder.File("logs/worker-0.log")) << "a line\xff\n";
    std::ofstream(folder.File("job.toml")) << "[model]\nname = \"mlp\"\n";
    std::ofstream(folder.File("metrics.csv")) << "3,0.5,2.5,0.1,0.01,900,800,1.25,3.5,0,0,0,0,,\n";
    runs.push_back(std::make_unique<RunWatch>(
        RunSource{
            .name = "first", .run_dir = folder.path(), .endpoint = "", .find_keys = FindReaderKeys},
        RunMetrics(registry, "first")));
    runs[0]->Start();
    server = std::make_unique<WebServer>(runs, registry);
    const Result<std::string> address =
        server->Start({.host = "127.0.0.1", .port = 0, .token = kToken, .base_path = base_path});
    REQUIRE_MESSAGE(address.ok(), address.status().message());
    CHECK(Contains(*address, base_path + "/#token="));
    const size_t colon = address->rfind(':');
    port = std::stoi(address->substr(colon + 1));
  }
  httplib::Client Connect(const std::string& token = kToken) const {
    httplib::Client client("127.0.0.1", port);
    if (!token.empty()) client.set_default_headers({{"Authorization", "Bearer " + token}});
    return client;
  }
  int StatusFor(const std::string& path) const { return Connect().Get(path)->status; }

  TempFolder folder;
  prometheus::Registry registry;
  std::vector<std::unique_ptr<RunWatch>> runs;
  std::unique_ptr<WebServer> server;
  int port = 0;
};

TEST_CASE("without the token nothing is shown of a run") {
  const Viewer viewer;
  const std::string log = "/api/log?run=0&name=worker-0";
  for (const std::string path :
       {"/metrics", "/%6detrics", "/api/stream", log.c_str(), "/nothing", "/api/page.js"}) {
    CAPTURE(path);
    CHECK(viewer.Connect("").Get(path)->status == 401);
    CHECK(viewer.Connect("0123456789abcdee").Get(path)->status == 401);
  }
  for (const std::string token : {"", kToken}) {
    CHECK(viewer.Connect("").Get("/metrics?token=" + token)->status == 401);
    CHECK(viewer.Connect("").Get("/metrics", {{"Cookie", "token=" + token}})->status == 401);
  }
  CHECK(viewer.Connect("").Post("/api/stop", "{\"run\":0}", "application/json")->status == 401);
}

TEST_CASE("the page's files need no token, and leave no cookie") {
  const Viewer viewer;
  for (const char* path : {"/", "/page.js", "/access.js", "/page.css", "/uplot.js", "/icon.svg"}) {
    CAPTURE(path);
    const auto file = viewer.Connect("").Get(path);
    CHECK(file->status == 200);
    CHECK_FALSE(file->has_header("Set-Cookie"));
    CHECK(Contains(file->get_header_value("Content-Security-Policy"), "default-src 'self'"));
    CHECK_FALSE(Contains(file->body, "mlp"));  // the run's model
  }
}

TEST_CASE("many headers and ranges are refused") {
  const Viewer viewer;
  httplib::Headers many;
  for (int i = 0; i < 200; ++i) many.emplace("X-Header", "1");
  CHECK(viewer.Connect().Get("/", many)->status == 431);
  CHECK(viewer.Connect().Get("/", {{"Range", "bytes=0-,0-,0-"}})->status == 416);
}

UniqueFd ConnectRaw(const Viewer& viewer) {
  UniqueFd link(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(viewer.port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(link.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  return link;
}

// The bytes that come until the server closes the connection.
std::string ReadToEnd(const UniqueFd& link) {
  std::string answer;
  std::array<char, 4096> part;
  for (ssize_t count = 1; count > 0;) {
    count = recv(link.get(), part.data(), part.size(), 0);
    answer.append(part.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
  return answer;
}

// The answer to what is sent on a connection, as far as it is read before the server closes it.
std::string SendRaw(const Viewer& viewer, const std::string& head, const std::string& piece) {
  const UniqueFd link = ConnectRaw(viewer);
  constexpr size_t kBytesMax = 64 << 20;  // many times what is read, or held on the way
  std::string next = head;
  for (size_t bytes = 0; bytes < kBytesMax; bytes += next.size()) {
    if (send(link.get(), next.data(), next.size(), MSG_NOSIGNAL) < 0) return ReadToEnd(link);
    next = piece;
  }
  FAIL("the server has read all");
  return "";
}

// A POST with the token, these headers, and another client's request as its body.
std::string AskTwice(const Viewer& viewer, const std::string& start, const std::string& headers) {
  const std::string token = std::string("Authorization: Bearer ") + kToken + "\r\n";
  const std::string inner = "GET /api/log?run=0&name=worker-0 HTTP/1.1\r\n" + token + "\r\n";
  const std::string outer = start + " HTTP/1.1\r\n" + headers;
  const std::string sent = outer + "\r\n" + inner;
  const UniqueFd link = ConnectRaw(viewer);
  CHECK(send(link.get(), sent.data(), sent.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(sent.size()));
  return ReadToEnd(link);
}

TEST_CASE("a body that is not read never becomes a request") {
  const Viewer viewer;
  const std::string token = std::string("Authorization: Bearer ") + kToken + "\r\n";
  const std::string length = "Content-Length: 92\r\n";
  for (const auto& [start, headers, status] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"POST /api/stop", length, "401"},
           {"POST /api/stop", token + length + "Content-Encoding: gzip\r\n", "415"},
           {"POST /api/stop", token + length + "Range: bytes=0-\r\n", "416"},
           {"POST /api/stop", token + "Content-Length: 5000\r\n", "413"},
           {"GET /icon.svg", length, "200"},
           {"GET /icon.svg", "", "200"},  // two requests at once
           {"HEAD /metrics", token + length, "200"},
           {"OPTIONS /metrics", token + length, "404"},
           {"BREW /metrics", token + length, "400"},
           {"GET /metrics", token + "no colon\r\n", "400"},
           {"POST /api/stop", token + length + "Content-Length: 0\r\n", "400"},
           {"POST /api/stop", token + length + "Transfer-Encoding: chunked\r\n", "400"},
           {"POST /api/stop", token + "Content-Length: 92\n", "400"},
           {"\r\nGET /metrics", token, "400"}}) {
    CAPTURE(start);
    CAPTURE(headers);
    const std::string answer = AskTwice(viewer, start, headers);
    CHECK(answer.starts_with("HTTP/1.1 " + status));
    CHECK(answer.rfind("HTTP/1.1 ") == 0);  // the only answer
    CHECK(Contains(answer, "Connection: close\r\n"));
    CHECK_FALSE(Contains(answer, "a line"));
  }
}

TEST_CASE("requests without an end are cut") {
  const Viewer viewer;
  const std::string post = std::string("POST /api/stop HTTP/1.1\r\nAuthorization: Bearer ") +
                           kToken + "\r\nContent-Type: application/json\r\nX-Pando: 1\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string spaces(64 << 10, ' ');
  std::string headers;
  while (headers.size() < spaces.size()) headers += "X-Header: 1\r\n";
  for (const auto& [head, piece] : std::vector<std::pair<std::string, std::string>>{
           {"GET /", std::string(64 << 10, 'a')},
           {"GET / HTTP/1.1\r\n", headers},
           {"GET / HTTP/1.1\r\nX-Header: ", spaces},
           {chunked, "10000\r\n" + spaces + "\r\n"},
           {chunked, std::string(64 << 10, '0')},
           {post + "\r\n", spaces},
           {post + "Content-Length: 99999999999\r\n\r\n", spaces}}) {
    CAPTURE(head);
    CHECK(!Contains(SendRaw(viewer, head, piece), " 200 "));
  }
  CHECK(viewer.StatusFor("/") == 200);
}

TEST_CASE("packed bodies are refused, and so are chunks that are too long together") {
  const Viewer viewer;
  const httplib::Headers packed{{"X-Pando", "1"}, {"Content-Encoding", "gzip"}};
  CHECK(viewer.Connect().Post("/api/stop", packed, "{}", "application/json")->status == 415);
  httplib::Client client = viewer.Connect();
  static const std::string kSpaces(100, ' ');
  const auto send_spaces = [](size_t offset, httplib::DataSink& sink) {
    if (offset >= 10'000) return sink.done(), true;
    return sink.write(kSpaces.data(), kSpaces.size());
  };
  CHECK(client.Post("/api/stop", {{"X-Pando", "1"}}, send_spaces, "application/json")->status ==
        413);
}

TEST_CASE("behind a proxy the page has its path, whether the proxy leaves it in requests or not") {
  const Viewer viewer("/runs/x");
  CHECK(viewer.Connect("").Get("/runs/x")->get_header_value("Location") == "/runs/x/");
  for (const std::string path : {"/", "/page.js", "/metrics", "/api/log?run=0&name=worker-0"}) {
    CAPTURE(path);
    const int stranger = path == "/" || path == "/page.js" ? 200 : 401;
    for (const std::string& shown : {path, "/runs/x" + path}) {
      CHECK(viewer.StatusFor(shown) == 200);
      CHECK(viewer.Connect("").Get(shown)->status == stranger);
    }
  }
  const httplib::Headers own{{"X-Pando", "1"}};
  CHECK(viewer.Connect().Post("/runs/x/api/stop", own, "{\"run\":0}", "application/json")->status ==
        409);  // there is no admin key
  CHECK(viewer.StatusFor("/runs/y/") == 404);
  const auto page = viewer.Connect("").Get("/runs/x/");
  CHECK(Contains(page->body, "<html"));
  CHECK_FALSE(Contains(page->body, "href=\"/"));
  CHECK_FALSE(Contains(page->body, "src=\"/"));
}

TEST_CASE("the stream begins with the runs and their whole history") {
  const Viewer viewer;
  std::string text;
  viewer.Connect().Get("/api/stream", [&](const char* bytes, size_t count) {
    text.append(bytes, count);
    return !Contains(text, "event: update\n");
  });
  CHECK(text.starts_with("event: hello\ndata: {"));
  CHECK(Contains(text, "\"columns\":[\"step\",\"epoch\",\"loss\","));
  CHECK(Contains(text, "\"model\":\"mlp\""));
  CHECK(Contains(text, "\"replace\":true"));
  CHECK(Contains(text, "\"rows\":[[3.0,0.5,2.5,"));
  CHECK(Contains(text, "\"status\":null"));
}

TEST_CASE("logs are those of the run alone, as text") {
  const Viewer viewer;
  CHECK(viewer.Connect().Get("/api/log?run=0&name=worker-0")->body == "a line\xEF\xBF\xBD\n");
  for (const char* name :
       {"worker-1", "../job", "..%2Fjob.toml", "%2Fetc%2Fpasswd", "", "worker-0%00"})
    CHECK(viewer.StatusFor(std::string("/api/log?run=0&name=") + name) == 404);
  for (const char* run : {"1", "-1", "x", "", "99999999999999999999"})
    CHECK(viewer.StatusFor(std::string("/api/log?name=worker-0&run=") + run) == 404);
  CHECK(viewer.StatusFor("/../job.toml") == 404);
}

TEST_CASE("commands come by POST from the page alone") {
  const Viewer viewer;
  const std::string path = "/api/stop", body = "{\"run\":0}", json = "application/json";
  const httplib::Headers ours{{"X-Pando", "1"}};
  CHECK(viewer.StatusFor(path) == 404);
  CHECK(viewer.Connect().Post(path, body, json)->status == 403);
  CHECK(viewer.Connect().Post(path, ours, body, "text/plain")->status == 403);
  CHECK(viewer.Connect()
            .Post(path, {{"X-Pando", "1"}, {"Origin", "http://evil.example"}}, body, json)
            ->status == 403);
  for (const char* site : {"cross-site", "same-site", "none"}) {
    CAPTURE(site);
    CHECK(viewer.Connect()
              .Post(path, {{"X-Pando", "1"}, {"Sec-Fetch-Site", site}}, body, json)
              ->status == 403);
  }
  CHECK(viewer.Connect()
            .Post(path, {{"X-Pando", "1"}, {"Sec-Fetch-Site", "same-origin"}}, "{}", json)
            ->status == 400);
  CHECK(viewer.Connect().Post(path, ours, "{}", json)->status == 400);
  CHECK(viewer.Connect().Post(path, ours, "[", json)->status == 400);
  CHECK(viewer.Connect().Post("/api/drain", ours, body, json)->status == 400);
  CHECK(viewer.Connect().Post(path, ours, std::string(10'000, ' '), json)->status == 413);
  // The viewer has no keys that admit commands.
  const auto refused = viewer.Connect().Post(path, ours, body, json);
  CHECK(refused->status == 409);
  CHECK(Contains(refused->body, "admin key"));
}

}  // namespace
}  // namespace pando
