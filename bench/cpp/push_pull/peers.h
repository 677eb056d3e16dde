// The processes of a measurement: `pando-bench peer KIND ...`. trial.cc starts them, and kills them
// when it has its result. A process that returns before that has failed.
#pragma once

#include <string>

#include "bench/cpp/push_pull/load.h"
#include "bench/cpp/push_pull/shared_counters.h"
#include "common/status.h"
#include "net/zmq/keys.h"

namespace pando::bench {

struct PeerArgs {
  std::string kind;          // pando-server, pando-worker, zmq-, tcp-server or -client
  int counters_fd = -1;      // the inherited descriptor of the counters
  uint32_t slot = 0;         // the slot of this process
  uint32_t server_slot = 0;  // for the raw server: the slot with its port
  uint32_t rank = 0;
  std::string join;      // the scheduler's endpoint
  std::string endpoint;  // to bind or dial: "tcp://127.0.0.1:0", with the port in the slot, or
                         // "ipc://PATH"
  Load load;             // raw peers use only shard_bytes and shards_per_server
};

// Returns the keys in PANDO_KEYS; none without it.
Keys KeysOfBench(KeyRole purpose);
// Run server/lane, or LoadGenerator, over net/transport.
Status RunPandoServer(const PeerArgs& args);
Status RunPandoWorker(const PeerArgs& args, CounterSlot& counters);
// Use ROUTER and DEALER. Both send their own buffers with zmq_msg_init_data.
Status RunZmqServer(const PeerArgs& args, CounterSlot& counters);
Status RunZmqClient(const PeerArgs& args, CounterSlot& counters, const CounterSlot& server);
// Use blocking sockets. The client sends and receives on two threads.
Status RunTcpServer(const PeerArgs& args, CounterSlot& counters);
Status RunTcpClient(const PeerArgs& args, CounterSlot& counters, const CounterSlot& server);

}  // namespace pando::bench
