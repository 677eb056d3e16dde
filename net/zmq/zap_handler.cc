#include "net/zmq/zap_handler.h"

#include <fmt/core.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/clock.h"

namespace pando {
namespace {

constexpr const char* kEndpoint = "inproc://zeromq.zap.01";
constexpr Micros kWarningInterval = std::chrono::minutes(1);
// The frames of a request before its credentials: version, request id, domain, address, routing id,
// mechanism.
constexpr size_t kFramesBeforeCredentials = 6;
constexpr size_t kFramesMax = kFramesBeforeCredentials + 2;

// Returns false once the context is closed.
bool ReceiveFrame(zmq::socket_t& socket, std::string* frame, bool* is_last) {
  zmq_msg_t part;
  PANDO_CHECK(zmq_msg_init(&part) == 0);
  int count = -1;
  do {
    count = zmq_msg_recv(&part, socket.handle(), 0);
  } while (count < 0 && zmq_errno() == EINTR);
  if (count >= 0) {
    frame->assign(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
    *is_last = zmq_msg_more(&part) == 0;
  }
  PANDO_CHECK(zmq_msg_close(&part) == 0);
  return count >= 0;
}

bool SendFrame(zmq::socket_t& socket, const std::string& frame, bool is_last) {
  int sent = -1;
  do {
    sent = zmq_send(socket.handle(), frame.data(), frame.size(), is_last ? 0 : ZMQ_SNDMORE);
  } while (sent < 0 && zmq_errno() == EINTR);
  return sent >= 0;
}

}  // namespace

struct ZapHandler::Request {
  std::vector<std::string> frames;
  // Returns "" if the frame is missing.
  std::string At(size_t index) const { return index < frames.size() ? frames[index] : ""; }
  std::string version() const { return At(0); }
  std::string id() const { return At(1); }
  std::string domain() const { return At(2); }
  std::string address() const { return At(3); }
  std::string mechanism() const { return At(5); }
  std::string credential(size_t index) const { return At(kFramesBeforeCredentials + index); }
};

ZapHandler::ZapHandler(zmq::context_t& context, const Keys& keys, const KeyPair& own,
                       std::function<void(const std::string& text)> on_warning)
    : keys_(keys),
      own_(own),
      on_warning_(std::move(on_warning)),
      socket_(context, zmq::socket_type::rep) {
  socket_.set(zmq::sockopt::linger, 0);
  socket_.bind(kEndpoint);
  // Blocks all signals in the thread, because other threads wait for them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ZapHandler::~ZapHandler() { thread_.join(); }

void ZapHandler::Run() {
  Request request;
  Micros warned_at{0};
  while (ReadRequest(&request)) {
    const std::string role = RoleFor(request);
    const bool is_let_in = !role.empty();
    const Micros now = SteadyNow();
    if (!is_let_in && (warned_at == Micros(0) || now - warned_at >= kWarningInterval)) {
      warned_at = now;
      Warn(request);
    }
    const std::array<std::string, 6> reply{request.version(),
                                           request.id(),
                                           is_let_in ? "200" : "300",
                                           is_let_in ? "OK" : "not one of this run's keys",
                                           role,
                                           ""};
    bool is_sent = true;
    for (size_t i = 0; i < reply.size(); ++i)
      is_sent = is_sent && SendFrame(socket_, reply[i], i + 1 == reply.size());
    if (!is_sent) break;
  }
  socket_.close();
}

bool ZapHandler::ReadRequest(Request* request) {
  request->frames.clear();
  bool is_last = false;
  while (!is_last) {
    std::string frame;
    if (!ReceiveFrame(socket_, &frame, &is_last)) return false;
    if (request->frames.size() < kFramesMax) request->frames.push_back(std::move(frame));
  }
  return true;
}

// Returns the role's name, or "" if the connection is refused.
std::string ZapHandler::RoleFor(const Request& request) const {
  const bool is_lane = request.domain() == kLaneDomain;
  if (request.mechanism() == "PLAIN") {
    const std::string expected = MemberPassword(keys_, own_.public_key);
    const bool is_member =
        is_lane && !expected.empty() && AreEqualSecrets(request.credential(1), expected);
    return is_member ? EnumName(KeyRole::kMember) : "";
  }
  const std::string raw = request.credential(0);
  std::array<char, 41> key{};
  if (request.mechanism() != "CURVE" || raw.size() != 32) return "";
  zmq_z85_encode(key.data(), reinterpret_cast<const uint8_t*>(raw.data()), raw.size());
  for (const KeyRole role : {KeyRole::kAdmin, KeyRole::kMember, KeyRole::kReader}) {
    if (keys_.Of(role).public_key == key.data())
      return is_lane && role == KeyRole::kReader ? "" : EnumName(role);
  }
  return "";
}

void ZapHandler::Warn(const Request& request) {
  if (on_warning_)
    on_warning_(fmt::format("refused a connection from {}: its key is not one of those in {}",
                            request.address(), keys_.folder));
}

}  // namespace pando
