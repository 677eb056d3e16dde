#include "run/etcd/etcd_client.h"

#include <doctest/doctest.h>

#include <optional>
#include <thread>

#include "tests/contains.h"
#include "tests/etcd_server.h"
#include "tests/run/etcd_proxy.h"

namespace pando {
namespace {

TEST_CASE("the addresses of etcd") {
  CHECK(ParseEtcdUrls("http://a:2379,https://[::1]:1")->endpoints ==
        std::vector<std::string>{"http://a:2379", "https://[::1]:1"});
  for (const char* wrong : {"", "a:2379", "tcp://a:1", "http://a", "http://a:0", "http://a:99999",
                            "http://a:1,", "http://a:1/", "http://:1"}) {
    CAPTURE(wrong);
    const Status status = ParseEtcdUrls(wrong).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(Contains(status.message(), "is not an address of etcd: expected http://HOST:PORT"));
  }
}

TEST_CASE("keys and values are any bytes, and a range has all keys") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdClient client(EtcdServer::Shared().options());
  const std::string prefix = EtcdServer::NewPrefix();
  std::string bytes;
  for (int c = 255; c >= 0; --c) {
    bytes += static_cast<char>(c);
    REQUIRE(client.Transact({.success = {EtcdPut{prefix + bytes.back(), bytes}}}).ok());
  }
  std::string end = prefix;
  ++end.back();
  const auto all = client.Get(prefix, end);
  REQUIRE(all.ok());
  REQUIRE(all->size() == 256);
  for (size_t c = 0; c < 256; ++c) {
    CHECK((*all)[c].key == prefix + static_cast<char>(c));
    CHECK((*all)[c].value == bytes.substr(0, 256 - c));
    CHECK((*all)[c].mod_revision == (*all)[255].mod_revision + static_cast<int64_t>(255 - c));
  }
  CHECK(client.Get(prefix)->empty());
}

TEST_CASE("a transaction executes one of its branches") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdClient client(EtcdServer::Shared().options());
  const std::string key = EtcdServer::NewPrefix();
  const auto put = [&](int64_t revision, const std::string& value) {
    return *client.Transact({.compares = {{.key = key, .revision = revision}},
                             .success = {EtcdPut{key, value}},
                             .failure = {EtcdGet{key}}});
  };
  const EtcdOutcome first = put(0, "first");
  CHECK(first.has_succeeded);
  const EtcdOutcome refused = put(0, "second");
  CHECK_FALSE(refused.has_succeeded);
  REQUIRE(refused.records.size() == 1);
  CHECK(refused.records[0].value == "first");
  CHECK(refused.records[0].mod_revision == first.revision);
  CHECK(put(first.revision, "third").has_succeeded);
  CHECK(client.Get(key)->at(0).create_revision == first.revision);
}

TEST_CASE("another endpoint answers where one does not, and an error names all") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdServer& server = EtcdServer::Shared();
  EtcdClient client({.endpoints = {"http://127.0.0.1:1", server.url()}});
  CHECK(client.Get("/none").ok());
  EtcdClient nothing({.endpoints = {"http://127.0.0.1:1", "http://127.0.0.1:2"}});
  const Status status = nothing.Get("/none").status();
  CHECK(status.code() == StatusCode::kUnavailable);
  CHECK(status.message().starts_with("cannot use /none in etcd: http://127.0.0.1:1: "));
  CHECK(Contains(status.message(), ", http://127.0.0.1:2: "));
  CHECK(status.message().ends_with("; check that most of etcd's servers run"));
}

TEST_CASE("a server that is not etcd is an error") {
  httplib::Server server;
  std::string answer;
  server.Post(".*", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(answer, "application/json");
  });
  const int port = server.bind_to_any_port("127.0.0.1");
  std::thread thread([&] { server.listen_after_bind(); });
  std::optional<EtcdClient> client(
      EtcdOptions{.endpoints = {"http://127.0.0.1:" + std::to_string(port)}});
  for (const char* wrong : {"", "x", "[]", "1"}) {
    answer = wrong;
    CHECK(Contains(client->Get("/").status().message(),
                   "HTTP status 200 without the JSON of etcd 3.4 or later; "));
  }
  answer = R"({"error":{"message":"etcdserver: no leader"}})";
  CHECK(client->KeepAlive(1).status().code() == StatusCode::kUnavailable);
  for (const char* odd : {"{}", R"({"responses":1,"header":[]})",
                          R"({"responses":[{"response_range":{"kvs":[{"value":"?"}]}}]})"}) {
    answer = odd;
    CHECK(client->Get("/").ok());  // fields that do not fit are as good as none
  }
  client.reset();  // the server waits for it
  server.stop();
  thread.join();
}

TEST_CASE("users log in, again when their token has ended, and are refused with advice") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdServer server;
  httplib::Client admin(server.url());
  const auto post = [&](const std::string& path, const std::string& body) {
    const auto answer = admin.Post("/v3/auth/" + path, body, "application/json");
    REQUIRE(answer);
    REQUIRE_MESSAGE(answer->status == 200, answer->body);
  };
  EtcdOptions options = server.options();
  options.user = "pando";
  options.password = "secret";
  CHECK(Contains(EtcdClient(options).Get("/pando/x").status().message(),
                 "authentication is not enabled; give no user"));
  post("user/add", R"({"name":"root","password":"r"})");
  post("user/add", R"({"name":"pando","password":"secret"})");
  post("role/add", R"({"name":"root"})");
  post("role/add", R"({"name":"pando"})");
  post("user/grant", R"({"user":"root","role":"root"})");
  post("user/grant", R"({"user":"pando","role":"pando"})");
  // "/pando/" to "/pando0"
  post("role/grant", R"({"name":"pando","perm":{"permType":"READWRITE","key":"L3BhbmRvLw==",)"
                     R"("range_end":"L3BhbmRvMA=="}})");
  post("enable", "{}");
  EtcdClient client(options);
  REQUIRE(client.Get("/pando/x").ok());
  CHECK(client.Transact({.success = {EtcdPut{"/pando/x", "1"}}}).ok());
  const Status denied = client.Get("/other").status();
  CHECK(denied.code() == StatusCode::kInvalidArgument);
  CHECK(Contains(denied.message(), "permission denied; grant the user a role"));
  server.Kill();
  server.Start();  // tokens do not outlive etcd
  CHECK(client.Get("/pando/x")->at(0).value == "1");
  options.password = "other";
  const Status wrong = EtcdClient(options).Get("/pando/x").status();
  CHECK(wrong.code() == StatusCode::kInvalidArgument);
  CHECK(Contains(wrong.message(), "; check the user and the password"));
  const Status nameless = EtcdClient(server.options()).Get("/pando/x").status();
  CHECK(nameless.code() == StatusCode::kInvalidArgument);
  CHECK(Contains(nameless.message(), "; give a user and a password"));
}

TEST_CASE("etcd's certificate is checked") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdServer server({"--auto-tls"}, "https");
  const Status unknown = EtcdClient(server.options()).Get("/x").status();
  CHECK(unknown.code() == StatusCode::kInvalidArgument);
  CHECK(Contains(unknown.message(), "; check the files of the CA, certificate and key"));
  EtcdOptions options = server.options();
  options.ca_file = server.DataFile("none.pem");
  CHECK(EtcdClient(options).Get("/x").status().code() == StatusCode::kInvalidArgument);
  options.ca_file = server.DataFile("fixtures/client/cert.pem");  // signed by itself
  const auto found = EtcdClient(options).Get("/x");
  CHECK_MESSAGE(found.ok(), found.status().message());
}

}  // namespace
}  // namespace pando
