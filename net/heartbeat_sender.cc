#include "net/heartbeat_sender.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/unique_fd.h"
#include "net/socket_address.h"
#include "proto/message_limits.h"

namespace pando {
namespace {

// While the scheduler is away, older heartbeats have no value.
constexpr int kQueuedHeartbeatsMax = 4;

// Returns the last line of a text that may end with an unfinished one. Bytes that are not text,
// such as a terminal's colours, become spaces.
std::string LastLineIn(std::string_view text) {
  const size_t end = text.find_last_not_of("\n\r \t");
  if (end == std::string_view::npos) return "";
  text = text.substr(0, end + 1);
  text = text.substr(text.find_last_of('\n') + 1);  // npos + 1 is 0
  std::string line(text.substr(0, kLogLineBytesMax));
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return line;
}

}  // namespace

OwnLog::OwnLog(int fd) : fd_(fd) {
  struct stat file {};
  if (fstat(fd, &file) == 0) read_size_ = static_cast<uint64_t>(file.st_size);
}

// Standard error is open only for writing, so we open the file again.
const std::string& OwnLog::LastLine() {
  struct stat file {};
  if (fstat(fd_, &file) != 0 || !S_ISREG(file.st_mode)) return line_;
  const auto size = static_cast<uint64_t>(file.st_size);
  if (size == read_size_) return line_;
  const std::string path = "/proc/self/fd/" + std::to_string(fd_);
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return line_;
  std::array<char, 4096> tail{};
  const uint64_t start = size - std::min<uint64_t>(size, tail.size());
  const ssize_t count = pread(fd.get(), tail.data(), tail.size(), static_cast<off_t>(start));
  if (count < 0) return line_;
  read_size_ = size;
  line_ = LastLineIn({tail.data(), static_cast<size_t>(count)});
  return line_;
}

HeartbeatSender::HeartbeatSender(ZmqContext& context, const Options& options,
                                 const HeartbeatState& state)
    : options_(options),
      context_(context),
      transport_(context, options.self,
                 {.channel = Channel::kHeartbeat,
                  .linger_ms = 0,
                  .queued_messages_max = kQueuedHeartbeatsMax}),
      state_(state) {}

HeartbeatSender::~HeartbeatSender() {
  stop_.Request();
  if (thread_.joinable()) thread_.join();
}

Status HeartbeatSender::Start() {
  PANDO_CHECK(!thread_.joinable());
  const PeerId scheduler{kSchedulerNode, Incarnation(), 0};
  PANDO_RETURN_IF_ERROR(transport_.Dial(scheduler, options_.scheduler_endpoint));
  answered_at_ = SteadyNow();
  thread_ = std::thread([this] { Run(); });
  return Status();
}

void HeartbeatSender::Update(const HeartbeatState& state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

void HeartbeatSender::Run() {
  const std::array<int, 1> fds = {stop_.fd()};
  Micros next{0};
  while (!stop_.is_requested()) {
    Envelope answer;
    while (transport_.Receive(&answer)) {
      answered_at_ = SteadyNow();
      if (const auto* ack = std::get_if<HeartbeatAck>(&answer.message)) OnAck(*ack);
    }
    const Micros now = SteadyNow();
    if (now >= next) {
      // A line of this process on which no message comes does not see that it leads to itself.
      if (now - answered_at_.load() > Transport::kSchedulerSilence) EndSelfConnections();
      transport_.Send(Compose(now, log_.LastLine()));
      next = now + options_.interval;
    }
    transport_.Wait(next, fds);
  }
}

void HeartbeatSender::OnAck(const HeartbeatAck& ack) {
  if (ack.is_given_up) {
    is_given_up_ = true;
    return;
  }
  context_.schedulers().Learn(ack.schedulers);
  schedulers_hash_ = HashEndpoints(ack.schedulers);
}

Envelope HeartbeatSender::Compose(Micros now, const std::string& log_line) {
  const std::lock_guard lock(mutex_);
  Heartbeat heartbeat = state_.content;
  heartbeat.tcp_lines = state_.lines.tcp;
  heartbeat.ipc_lines = state_.lines.ipc;
  heartbeat.shm_lines = state_.lines.shm;
  heartbeat.waiting_ms = 0;
  if (state_.waiting_since && *state_.waiting_since < now) {
    const auto waited = now - *state_.waiting_since;
    heartbeat.waiting_ms = static_cast<uint64_t>(waited / std::chrono::milliseconds(1));
  }
  heartbeat.log_line = log_line;
  heartbeat.schedulers_hash = schedulers_hash_;
  heartbeat.tcp_traffic = context_.traffic().Read(LineKind::kTcp);
  heartbeat.ipc_traffic = context_.traffic().Read(LineKind::kIpc);
  heartbeat.shm_traffic = context_.traffic().Read(LineKind::kShm);
  return {.job = state_.job,
          .generation = state_.generation,
          .view = state_.view,
          .sender = options_.self,
          .receiver = state_.scheduler,
          .message = heartbeat};
}

}  // namespace pando
