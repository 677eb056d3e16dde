// Measures raw ZeroMQ: libzmq's own speed, with the sockets and options of net/, and no protocol.
#include <fmt/core.h>
#include <zmq.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include "bench/cpp/push_pull/peers.h"
#include "common/check.h"
#include "common/float_buffer.h"
#include "net/address.h"
#include "net/zmq/zmq_context.h"

namespace pando::bench {
namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  Socket(ZmqContext& context, int type)
      : handle_(zmq_socket(context.zmq_context().handle(), type)) {
    PANDO_CHECK(handle_ != nullptr);
  }
  ~Socket() { zmq_close(handle_); }
  Socket(const Socket&) = delete;

  Status Bind(const std::string& endpoint) {
    return Check(zmq_bind(handle_, endpoint.c_str()), "bind", endpoint);
  }
  Status Connect(const std::string& endpoint) {
    return Check(zmq_connect(handle_, endpoint.c_str()), "dial", endpoint);
  }
  std::string endpoint() const {
    char text[256];
    size_t size = sizeof(text);
    PANDO_CHECK(zmq_getsockopt(handle_, ZMQ_LAST_ENDPOINT, text, &size) == 0);
    return text;
  }
  // Sends bytes in place. The buffer is not written again.
  void SendBytes(const FloatBuffer& buffer, size_t bytes) {
    zmq_msg_t message;
    const auto keep = [](void*, void*) {};
    PANDO_CHECK(
        zmq_msg_init_data(&message, const_cast<float*>(buffer.data()), bytes, keep, nullptr) == 0);
    PANDO_CHECK(zmq_msg_send(&message, handle_, 0) >= 0);
  }
  void Send(zmq_msg_t* message, int flags) {
    PANDO_CHECK(zmq_msg_send(message, handle_, flags) >= 0);
  }
  void Receive(zmq_msg_t* message) {
    PANDO_CHECK(zmq_msg_init(message) == 0 && zmq_msg_recv(message, handle_, 0) >= 0);
  }

 private:
  static Status Check(int result, const char* what, const std::string& endpoint) {
    if (result == 0) return Status();
    return Unavailable(fmt::format("cannot {} {}: {}", what, endpoint, zmq_strerror(errno)));
  }
  void* handle_;
};

std::vector<FloatBuffer> Buffers(const Load& load) {
  std::vector<FloatBuffer> buffers;
  for (uint32_t i = 0; i < load.shards_per_server; ++i)
    buffers.emplace_back(load.shard_bytes / sizeof(float));
  return buffers;
}

}  // namespace

Status RunZmqServer(const PeerArgs& args, CounterSlot& counters) {
  ZmqContext context;
  Socket socket(context, ZMQ_ROUTER);
  PANDO_RETURN_IF_ERROR(socket.Bind(args.endpoint));
  PANDO_ASSIGN_OR_RETURN(const Endpoint bound, ParseEndpoint(socket.endpoint()));
  // Without a port, any number but 0 means that the server listens.
  counters.port = bound.kind == Endpoint::Kind::kTcp ? bound.port : 1;
  const std::vector<FloatBuffer> buffers = Buffers(args.load);
  for (size_t i = 0;; ++i) {
    zmq_msg_t id, payload;
    socket.Receive(&id);
    socket.Receive(&payload);
    PANDO_CHECK(zmq_msg_size(&payload) == args.load.shard_bytes);
    zmq_msg_close(&payload);
    socket.Send(&id, ZMQ_SNDMORE);
    socket.SendBytes(buffers[i % buffers.size()], args.load.shard_bytes);
  }
}

Status RunZmqClient(const PeerArgs& args, CounterSlot& counters, const CounterSlot& server) {
  const uint32_t port = server.WaitForPort();
  const bool is_tcp = args.endpoint.starts_with("tcp://");
  ZmqContext context;
  Socket socket(context, ZMQ_DEALER);
  Status dialed = socket.Connect(is_tcp ? fmt::format("tcp://127.0.0.1:{}", port) : args.endpoint);
  if (!dialed.ok()) return dialed;
  const std::vector<FloatBuffer> buffers = Buffers(args.load);
  std::deque<Clock::time_point> sent_at;
  const auto push = [&](size_t i) {
    sent_at.push_back(Clock::now());
    socket.SendBytes(buffers[i % buffers.size()], args.load.shard_bytes);
  };
  for (size_t i = 0; i < buffers.size(); ++i) push(i);
  for (size_t i = 0;; ++i) {
    zmq_msg_t reply;
    socket.Receive(&reply);
    PANDO_CHECK(zmq_msg_size(&reply) == args.load.shard_bytes);
    zmq_msg_close(&reply);
    counters.message_count.fetch_add(2, std::memory_order_relaxed);
    counters.NoteReply(args.load.shard_bytes, Clock::now() - sent_at.front());
    sent_at.pop_front();
    push(i);
  }
}

}  // namespace pando::bench
