// ZapHandler decides which connections a context's ROUTERs accept (P44), by ZeroMQ's authentication
// protocol (RFC 27/ZAP). ZmqContext uses it.
//
// CURVE has proved which key the peer holds. A role's key is accepted, and messages of its
// connection bear the role's name as their user id. A lane accepts no reader. PLAIN has a password,
// which a member can make (MemberPassword). Other connections are refused for now (300): ZeroMQ
// then dials again, which it never does after a final refusal.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <zmq.hpp>

#include "net/zmq/keys.h"

namespace pando {

// The purpose of a bound socket, which the handler gets as the ZAP domain.
inline constexpr const char* kSchedulerDomain = "scheduler";
inline constexpr const char* kLaneDomain = "lane";

class ZapHandler {
 public:
  // Listens before it returns. Its thread ends when `context` is closed, before the destructor.
  ZapHandler(zmq::context_t& context, const Keys& keys, const KeyPair& own,
             std::function<void(const std::string& text)> on_warning);
  ~ZapHandler();

 private:
  struct Request;
  void Run();
  bool ReadRequest(Request* request);
  std::string RoleFor(const Request& request) const;
  void Warn(const Request& request);

  const Keys& keys_;
  const KeyPair& own_;
  const std::function<void(const std::string& text)> on_warning_;
  zmq::socket_t socket_;
  std::thread thread_;
};

}  // namespace pando
