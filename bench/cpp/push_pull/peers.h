// The processes of a measurement: `pando-bench peer KIND ...`. trial.cc starts them, and kills them
// when it has its result. Each runs until then; if it returns, that is a failure.
#pragma once

#include <string>

#include "bench/cpp/push_pull/load.h"
#include "bench/cpp/push_pull/shared_counters.h"
#include "common/status.h"
#include "net/zmq/keys.h"

namespace pando::bench {

struct PeerArgs {
  std::string kind;          // pando-server, pando-worker, zmq-, tcp-server or -client
  int counters_fd = -1;      // inherited
  uint32_t slot = 0;         // this process's
  uint32_t server_slot = 0;  // for the raw server: the slot with its port
  uint32_t rank = 0;
  std::string join;      // the scheduler's endpoint
  std::string endpoint;  // to bind or dial: "tcp://127.0.0.1:0", with the port in the slot, or
                         // "ipc://PATH"
  Load load;             // for raw peers only bytes and shards_per_server in flight
};

// Returns the keys in PANDO_KEYS; none without it.
Keys KeysOfBench(KeyRole purpose);
// Pando's own peers: server/lane and LoadGenerator over net/transport.
Status RunPandoServer(const PeerArgs& args);
Status RunPandoWorker(const PeerArgs& args, CounterSlot& counters);
// ROUTER and DEALER, which both send their own buffers with zmq_msg_init_data.
Status RunZmqServer(const PeerArgs& args, CounterSlot& counters);
Status RunZmqClient(const PeerArgs& args, CounterSlot& counters, const CounterSlot& server);
// Blocking sockets; the client sends and receives on two threads.
Status RunTcpServer(const PeerArgs& args, CounterSlot& counters);
Status RunTcpClient(const PeerArgs& args, CounterSlot& counters, const CounterSlot& server);

}  // namespace pando::bench
