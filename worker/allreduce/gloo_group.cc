#include <fcntl.h>
#include <fmt/core.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/hash.h"
#include "common/unique_fd.h"
#include "worker/allreduce/allreduce_group.h"

namespace pando {
namespace {

using gloo::transport::tcp::Address;
using Peers = std::map<int, std::string>;  // where they listen, by rank

// gloo has no wait without a timeout. A rank that evaluates, or computes a large batch, may take
// its time. If a rank is gone, the scheduler, whose leases are short, stops those that wait for it.
constexpr std::chrono::hours kOperationTimeout{24};
constexpr std::chrono::milliseconds kStorePoll{5};
// Medians of 2 and 4 ranks over loopback, ring against halving-doubling: 64 KiB 0.09 and 0.05 ms, 1
// MiB 0.47 and 0.42 ms, 25 MB 33 and 41 ms (2 ranks); 25 MB 115 and 150 ms (4 ranks). A job has one
// algorithm for all its buckets: with halving-doubling for the small ones, a step of VGG-16 with 4
// ranks over 1 Gbit/s took 11.3 s, and 7.5 s with ring alone.
constexpr size_t kRingBytesMin = size_t{2} << 20;

bool IsRing(const GlooOptions& options) {
  if (options.algorithm == AllreduceAlgorithm::kAuto) return options.step_bytes >= kRingBytesMin;
  return options.algorithm == AllreduceAlgorithm::kRing;
}

// The ranks' addresses, as files of the run. gloo's own stores wait for as long as the context
// does; this one until its own deadline, or until it is cancelled.
class Store : public gloo::rendezvous::Store {
 public:
  Store(const GlooOptions& options, const std::atomic<bool>& is_cancelled)
      : files_(*options.files),
        prefix_(options.prefix),
        is_cancelled_(is_cancelled),
        deadline_(std::chrono::steady_clock::now() + options.connect_timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const Status status = files_.Store(NameFor(key), {std::as_bytes(std::span(data))});
    if (!status.ok()) throw gloo::IoException(status.message());
  }
  std::vector<char> get(const std::string& key) override {
    while (true) {
      const Result<std::unique_ptr<ReadableFile>> file = files_.Open(NameFor(key));
      if (file.ok()) return ReadWhole(**file);
      if (file.status().code() != StatusCode::kNotFound)
        throw gloo::IoException(file.status().message());
      if (is_cancelled_) throw gloo::IoException("called off");
      if (std::chrono::steady_clock::now() >= deadline_)
        throw gloo::IoException("not all ranks have come in time");
      std::this_thread::sleep_for(kStorePoll);
    }
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  std::string NameFor(const std::string& key) const {
    return fmt::format("{}-{}", prefix_, HexText(Hash64(key)));
  }
  static std::vector<char> ReadWhole(const ReadableFile& file) {
    std::vector<char> data(file.size());
    const Status status = file.Read(0, std::as_writable_bytes(std::span(data)));
    if (!status.ok()) throw gloo::IoException(status.message());
    return data;
  }

  RunFiles& files_;
  const std::string prefix_;
  const std::atomic<bool>& is_cancelled_;
  const std::chrono::steady_clock::time_point deadline_;
};

// The base class does not give access to the addresses that peers have put into the store.
class Mesh : public gloo::rendezvous::Context {
 public:
  using gloo::rendezvous::Context::Context;
  std::string PeerAddress(Store& store, int peer) {
    std::vector<char> all =
        store.get(std::to_string(peer));  // its key, as connectFullMesh writes it
    return Address(extractAddress(all, peer)).str();
  }
};

// The sockets of the mesh: accepted where this rank listens, or dialed to where a peer does. gloo
// wakes a thread that waits for a peer when the peer hangs up, and not when we close our end from
// another thread. With copies of the sockets we can shut them down ourselves.
std::vector<UniqueFd> FindSockets(const std::string& ours, const Peers& peers) {
  std::vector<UniqueFd> sockets;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    const auto text_of = [fd](auto name_of) {
      sockaddr_storage name{};
      socklen_t size = sizeof(name);
      const bool has_name = name_of(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0;
      const bool is_ip = has_name && (name.ss_family == AF_INET || name.ss_family == AF_INET6);
      return is_ip ? Address(name).str() : std::string();
    };
    const std::string peer = text_of(getpeername);
    if (peer.empty()) continue;
    const auto is_it = [&](const auto& known) { return known.second == peer; };
    if (text_of(getsockname) == ours || std::ranges::any_of(peers, is_it))
      sockets.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  }
  return sockets;
}

// "[/build/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.3]:41213": the place
// in gloo's source is of no use to the reader.
std::string Describe(const std::exception& error) {
  const std::string text = error.what();
  const size_t place = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return place == std::string::npos ? text : text.substr(place + 2);
}

// gloo writes to sockets whose peer may have hung up, on this thread and on its own, which takes
// our signals over: an error is wanted then, not the end of the process.
void BlockBrokenPipes() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  PANDO_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
}

// gloo's exceptions become a status here; none leaves this file. gloo names a peer by an
// address. Where that is the one that it listens at we know its rank; a peer that dialed us has
// another one.
template <class Call>
Status Caught(const char* what, const Peers& peers, Call call) {
  try {
    call();
    return Status();
  } catch (const std::exception& error) {
    const std::string text = fmt::format("allreduce: {}: {}", what, Describe(error));
    for (const auto& [rank, peer] : peers) {
      if (text.find(peer) != std::string::npos)
        return Unavailable(fmt::format("{} (worker {})", text, rank));
    }
    return Unavailable(text);
  }
}

class GlooGroup : public AllreduceGroup {
 public:
  // REQUIRES: the mesh is connected, through this store.
  GlooGroup(const GlooOptions& options, std::shared_ptr<Mesh> mesh, Store& store)
      : is_ring_(IsRing(options)), context_(std::move(mesh)) {
    if (context_->size == 1) return;
    for (int rank = 0; rank < context_->size; ++rank) {
      if (rank != context_->rank) peers_[rank] = context_->PeerAddress(store, rank);
    }
    const std::string ours = context_->getPair(peers_.begin()->first)->address().str();
    sockets_ = FindSockets(ours, peers_);
  }
  ~GlooGroup() override {
    Close();  // first: what the algorithms registered may be in use by gloo's own thread
  }

  Status Sum(std::span<float> values) override {
    if (context_->size == 1 || values.empty()) return Status();
    return Caught("summing gradients failed", peers_,
                  [&] { is_ring_ ? SumByRing(values) : SumByHalves(values); });
  }

  Status Broadcast(std::span<std::byte> bytes) override {
    if (context_->size == 1 || bytes.empty()) return Status();
    return Caught("rank 0's word did not come", peers_, [&] {
      gloo::BroadcastOptions options(context_);
      options.setOutput(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size());
      options.setRoot(0);
      options.setTag(++tag_);
      gloo::broadcast(options);
    });
  }

  void Close() override {
    const std::lock_guard lock(closing_);
    if (std::exchange(is_closed_, true)) return;
    for (const UniqueFd& socket : sockets_) shutdown(socket.get(), SHUT_RDWR);
  }

 private:
  using Halving = gloo::AllreduceHalvingDoubling<float>;

  void SumByRing(std::span<float> values) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values.data(), values.size());
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setReduceFunction(
        [](void* out, const void* a, const void* b, size_t n) { gloo::sum<float>(out, a, b, n); });
    options.setTag(++tag_);
    gloo::allreduce(options);
  }

  // One object for each array: it registers its buffers with the peers, in the same order on all
  // ranks, since they make the same calls.
  void SumByHalves(std::span<float> values) {
    std::unique_ptr<Halving>& halving = halvings_[{values.data(), values.size()}];
    if (halving == nullptr) {
      halving = std::make_unique<Halving>(context_, std::vector<float*>{values.data()},
                                          static_cast<int>(values.size()));
    }
    halving->run();
  }

  const bool is_ring_;
  std::mutex closing_;  // guards is_closed_
  bool is_closed_ = false;
  const std::shared_ptr<Mesh> context_;
  Peers peers_;
  std::vector<UniqueFd> sockets_;  // copies of the descriptors, to hang up
  uint32_t tag_ = 0;
  std::map<std::pair<float*, size_t>, std::unique_ptr<Halving>> halvings_;
};

}  // namespace

Status CheckGloo() { return Status(); }

Result<std::unique_ptr<AllreduceGroup>> ConnectGlooGroup(const GlooOptions& options,
                                                         const std::atomic<bool>& is_cancelled) {
  BlockBrokenPipes();
  std::unique_ptr<AllreduceGroup> group;
  const Status connected = Caught("the workers could not connect", {}, [&] {
    auto device = gloo::transport::tcp::CreateDevice(options.address.c_str());
    auto mesh =
        std::make_shared<Mesh>(static_cast<int>(options.rank), static_cast<int>(options.size));
    mesh->setTimeout(kOperationTimeout);
    Store store(options, is_cancelled);
    if (options.size > 1) mesh->connectFullMesh(store, device);
    group = std::make_unique<GlooGroup>(options, std::move(mesh), store);
  });
  if (!connected.ok()) return connected;
  return group;
}

}  // namespace pando
