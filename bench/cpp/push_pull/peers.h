// The processes of a measurement: `pando-bench peer KIND ...`, started by trial.cc, which kills
// them when it has what it wants. Each runs until then; what it returns is a failure.
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
  uint32_t slot = 0;         // ours
  uint32_t server_slot = 0;  // of the raw server: where its port is found
  uint32_t rank = 0;
  std::string join;      // the scheduler's endpoint
  std::string endpoint;  // to bind or dial: "tcp://127.0.0.1:0", where the port is found in the
                         // slot, or "ipc://PATH"
  Load load;             // of raw peers, bytes and shards_per_server in flight alone
};

// Those in PANDO_KEYS; none without it.
Keys KeysOfBench(KeyRole purpose);
// Pando's own: server/lane and LoadGenerator over net/transport.
Status RunPandoServer(const PeerArgs& args);
Status RunPandoWorker(const PeerArgs& args, CounterSlot& counters);
// ROUTER and DEALER, both sending their own buffers by zmq_msg_init_data.
Status RunZmqServer(const PeerArgs& args, CounterSlot& counters);
Status RunZmqClient(const PeerArgs& args, CounterSlot& counters, const CounterSlot& server);
// Blocking sockets; the client sends and receives on two threads.
Status RunTcpServer(const PeerArgs& args, CounterSlot& counters);
Status RunTcpClient(const PeerArgs& args, CounterSlot& counters, const CounterSlot& server);

}  // namespace pando::bench
