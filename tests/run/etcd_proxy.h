// EtcdProxy stands between a client and etcd, and does not pass on all requests or answers.
#pragma once

#include <doctest/doctest.h>
#include <httplib.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "run/etcd/etcd_client.h"
#include "tests/deadline.h"

namespace pando {

// Threads: any. Owns the thread that answers.
class EtcdProxy {
 public:
  enum class Fate {
    kPassed,
    kAnswerLost,  // etcd executes the request, and the client gets no answer of etcd
    kRefused,     // etcd never gets it
    kLate,        // etcd gets it in SendLate
  };
  // Decides about the n-th request, from 0, since the last SetFate.
  using Decide = std::function<Fate(size_t n)>;

  explicit EtcdProxy(const std::string& url) : url_(url) {
    server_.Post(".*", [this](const httplib::Request& request, httplib::Response& response) {
      Answer(request, response);
    });
    server_.set_tcp_nodelay(true);
    port_ = server_.bind_to_any_port("127.0.0.1");
    REQUIRE(port_ > 0);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~EtcdProxy() {
    server_.stop();
    thread_.join();
  }

  EtcdOptions options() const {
    return {.endpoints = {"http://127.0.0.1:" + std::to_string(port_)},
            .connect_limit = kEventDeadline,
            .request_limit = kEventDeadline};
  }
  void SetFate(Decide decide) {
    const std::lock_guard lock(mutex_);
    decide_ = std::move(decide);
    count_ = 0;
  }
  void SetFate(Fate fate) {
    SetFate([fate](size_t) { return fate; });
  }
  // The fate of requests that would change a key; SetFate is about the others then.
  void SetFateOfWrites(std::optional<Fate> fate) {
    const std::lock_guard lock(mutex_);
    write_fate_ = fate;
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  // Sends the late requests.
  void SendLate() {
    const std::lock_guard lock(mutex_);
    for (const auto& [path, body] : late_) REQUIRE(Send(path, body));
    late_.clear();
  }

 private:
  httplib::Result Send(const std::string& path, const std::string& body) const {
    httplib::Client client(url_);
    client.set_tcp_nodelay(true);
    client.set_read_timeout(kEventDeadline);
    return client.Post(path, body, "application/json");
  }
  void Answer(const httplib::Request& request, httplib::Response& response) {
    const std::lock_guard lock(mutex_);
    const size_t n = count_++;
    const bool is_write = request.body.find("request_put") != std::string::npos;
    Fate fate = decide_ ? decide_(n) : Fate::kPassed;
    if (is_write && write_fate_) fate = *write_fate_;
    response.status = 503;
    if (fate == Fate::kLate) late_.emplace_back(request.path, request.body);
    if (fate == Fate::kRefused || fate == Fate::kLate) return;
    const httplib::Result answer = Send(request.path, request.body);
    if (!answer || fate == Fate::kAnswerLost) return;
    response.status = answer->status;
    response.set_content(answer->body, "application/json");
  }

  const std::string url_;
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  std::mutex mutex_;  // guards all below
  Decide decide_;
  std::optional<Fate> write_fate_;
  size_t count_ = 0;
  std::vector<std::pair<std::string, std::string>> late_;
};

}  // namespace pando
