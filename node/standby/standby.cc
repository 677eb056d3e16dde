#include "node/standby/standby.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/event_fd.h"
#include "common/stop_wait.h"
#include "common/system.h"
#include "net/event_loop.h"
#include "net/socket_address.h"
#include "node/file_service.h"
#include "node/log.h"
#include "node/standby/mirror_receiver.h"

namespace pando {
namespace {

constexpr Micros kTryInterval = std::chrono::milliseconds(400);

// Candidate asks etcd again and again, on its own thread, until this scheduler leads or the run has
// ended. Requests to etcd block.
class Candidate {
 public:
  Candidate(const EtcdOptions& options, std::string endpoint, Seat& seat, MayBegin may_begin)
      : options_(options), endpoint_(std::move(endpoint)), seat_(seat), may_begin_(may_begin) {
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }
  int fd() const { return done_.fd(); }
  // REQUIRES: fd() was readable, which happens once.
  Result<Turn> TakeResult() {
    thread_.join();
    return std::move(*result_);
  }

 private:
  void Run(const std::stop_token& stop) {
    do {
      if (const Status status = Try(); !status.ok()) Tell(status);
      if (result_) return done_.Raise();
    } while (WaitUnlessStopped(stop, kTryInterval));
  }

  Status Try() {
    if (lease_ == nullptr || lease_->is_lost()) {
      PANDO_ASSIGN_OR_RETURN(lease_, EtcdLease::Grant(options_));
    }
    PANDO_RETURN_IF_ERROR(seat_.Announce(*lease_, endpoint_));
    PANDO_ASSIGN_OR_RETURN(Turn turn, seat_.TryToLead(lease_, may_begin_));
    if (const auto* waits = std::get_if<StandsBy>(&turn); waits == nullptr) {
      result_ = std::move(turn);
    } else if (waits->why != told_) {
      told_ = waits->why;
      spdlog::info("this scheduler stands by: {}", told_);
    }
    return Status();
  }

  // Refused credentials and the like do not pass by themselves.
  void Tell(const Status& status) {
    if (status.code() == StatusCode::kInvalidArgument) result_ = status;
    if (status.message() == told_) return;
    told_ = status.message();
    spdlog::warn("this scheduler cannot stand by: {}", told_);
  }

  const EtcdOptions options_;
  const std::string endpoint_;
  Seat& seat_;
  const MayBegin may_begin_;
  std::unique_ptr<EtcdLease> lease_;
  std::string told_;
  std::optional<Result<Turn>> result_;
  EventFd done_;
  std::jthread thread_;
};

// Keeps the port after the scheduler's free for the file store that it will have when it leads. The
// run's members dial that port all the time (EndSelfConnections).
UniqueFd HoldPortForFiles(const std::string& bound) {
  const Result<Endpoint> files = EndpointNextTo(bound);
  if (!files.ok() || files->kind != Endpoint::Kind::kTcp || files->port == 0) return UniqueFd();
  Result<UniqueFd> held = HoldTcp(files->host, files->port);
  if (held.ok()) return *std::move(held);
  spdlog::warn("{}", NoPortForFiles(held.status().message()).message());
  return UniqueFd();
}

}  // namespace

Result<std::string> BindPatiently(Transport& transport, const std::string& endpoint,
                                  const ShutdownSignal& shutdown) {
  constexpr Micros kPatience = std::chrono::seconds(65);
  const Micros deadline = SteadyNow() + kPatience;
  Result<std::string> bound = transport.Bind(endpoint);
  const auto is_in_use = [&] {
    return bound.status().message().find(std::strerror(EADDRINUSE)) != std::string::npos;
  };
  bool has_told = false;
  while (is_in_use() && SteadyNow() < deadline) {
    if (!std::exchange(has_told, true)) spdlog::warn("{}; waiting", bound.status().message());
    pollfd signalled{shutdown.fd(), POLLIN, 0};
    if (poll(&signalled, 1, /*timeout=*/10) > 0) break;
    bound = transport.Bind(endpoint);
  }
  return bound;
}

Status NoPortForFiles(const std::string& why) {
  return Unavailable(
      fmt::format("with --etcd the file store needs the port after the scheduler's: {}; give "
                  "--bind another port",
                  why));
}

Result<Turn> StandBy(const SchedulerArgs& args, Seat& seat, MayBegin may_begin,
                     ShutdownSignal& shutdown, ServiceNotice& service) {
  ZmqContext context(args.keys, LogWarning);
  Transport transport(context, {kSchedulerNode, NewIncarnation(), 0}, {.insecure = args.insecure});
  PANDO_ASSIGN_OR_RETURN(const std::string endpoint, BindPatiently(transport, args.bind, shutdown));
  const UniqueFd port_for_files = HoldPortForFiles(endpoint);
  MirrorReceiver receiver(args.run_dir, transport,
                          [&](uint64_t term) { return seat.BeginSession(term); });
  Candidate candidate(args.etcd->options, endpoint, seat, may_begin);
  service.SendReady("standing by at " + endpoint);
  const std::array fds{shutdown.fd(), candidate.fd()};
  while (true) {
    transport.Wait(SteadyNow() + std::chrono::seconds(1), fds);
    service.Feed(SteadyNow());
    pollfd done{candidate.fd(), POLLIN, 0};
    if (poll(&done, 1, 0) > 0) return candidate.TakeResult();
    if (const int signal = shutdown.Take(); signal != 0) return StoppedBy(signal);
    Envelope envelope;
    for (int i = 0; i < kMessagesPerTurnMax && transport.Receive(&envelope); ++i)
      receiver.OnMessage(SteadyNow(), envelope);
    receiver.Tick(SteadyNow());
  }
}

}  // namespace pando
