#include "bench/cpp/members/members_load.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/system.h"
#include "net/transport.h"
#include "proto/join_core.h"
#include "proto/view_delta.h"

namespace pando::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Micros kHeartbeatInterval = milliseconds(250);
constexpr Micros kReadyInterval = milliseconds(500);
constexpr Micros kPhaseMax = seconds(120);
// The stubs that join at the same time. Each real member has its own processor for its handshakes.
constexpr std::ptrdiff_t kJoiningMax = 64;

double Seconds(Micros time) { return static_cast<double>(time.count()) / 1e6; }

// The views of all stubs: each difference is applied once, however many stubs it is for.
class ViewCache {
 public:
  std::optional<SharedView> After(const SharedView& view, const ViewChange& change) {
    const std::pair key(view.hash(), change.hash);
    if (change.base_hash != key.first) return std::nullopt;
    const auto known = made_.find(key);
    if (known != made_.end()) return known->second;
    const std::optional<SharedView> made = Apply(view, change);
    if (made) made_.emplace(key, *made);
    return made;
  }

 private:
  std::map<std::pair<uint64_t, uint64_t>, SharedView> made_;  // by the hashes of both views
};

// One life of a process. As a real one does, it dials the scheduler for data, and for heartbeats
// once it is welcomed. It follows views as proto/view_member.h does, but keeps no tables of the
// other members.
class StubMember {
 public:
  StubMember(ZmqContext& context, ViewCache& views, const std::string& scheduler, uint32_t number,
             Role role)
      : views_(views),
        incarnation_(NewIncarnation()),
        data_(context, {kUnknownNode, incarnation_, 0}, {.linger_ms = 0}),
        heartbeats_(context, {kUnknownNode, incarnation_, 0},
                    {.channel = Channel::kHeartbeat, .linger_ms = 0}),
        join_(incarnation_, Registration(context, number, role), data_),
        endpoint_(scheduler) {}

  Status Dial() { return data_.Dial({kSchedulerNode, {}, 0}, endpoint_); }
  // Handles what has arrived, and sends what is due.
  void Turn(Micros now) {
    for (Transport* transport : {&data_, &heartbeats_}) {
      transport->Wait(now);
      Envelope envelope;
      while (transport->Receive(&envelope)) OnMessage(now, envelope);
    }
    if (!self_) return join_.Tick(now);
    if (!is_in_view_ && now >= ready_at_) {
      ready_at_ = now + kReadyInterval;
      Send(data_, Ready{.kind = "stub", .data_fingerprint = join_.welcome()->data.fingerprint});
    }
  }
  // Sends a heartbeat if it is due.
  void Beat(Micros now) {
    if (!self_ || now < heartbeat_at_) return;
    heartbeat_at_ = std::max(heartbeat_at_ + kHeartbeatInterval, now - kHeartbeatInterval);
    Send(heartbeats_, Heartbeat{});
  }

  const std::string& refusal() const { return refusal_; }
  // Returns whether a heartbeat was acknowledged.
  bool is_heard() const { return is_heard_; }
  bool is_in_view() const { return is_in_view_; }
  size_t members_known() const { return view_->nodes.size(); }
  ViewId view() const { return view_->id; }
  Micros entered_at() const { return entered_at_; }

 private:
  static Register Registration(ZmqContext& context, uint32_t number, Role role) {
    Register registration{.role = role,
                          .host = fmt::format("host{}", number),
                          .process_id = 10'000 + number,
                          .process_key = NewIncarnation().value()};
    if (role == Role::kServer)  // no member dials it
      registration.lane_endpoints = {
          fmt::format("tcp://10.1.{}.{}:7000", number / 256, number % 256)};
    if (context.has_keys()) registration.public_key = context.own_keys().public_key;
    return registration;
  }
  void Send(Transport& transport, Message message) {
    transport.Send({.job = join_.job(),
                    .generation = view_->generation,
                    .view = view_->id,
                    .sender = *self_,
                    .receiver = join_.scheduler(),
                    .message = std::move(message)});
  }
  void OnMessage(Micros now, const Envelope& envelope) {
    if (const auto* refused = std::get_if<Refused>(&envelope.message)) refusal_ = refused->reason;
    if (!self_) {
      join_.OnMessage(now, envelope);
      if (!join_.welcome()) return;
      self_ = join_.self(0);
      heartbeat_at_ = now;
      // Its data connection, to the same endpoint, has succeeded.
      std::ignore = heartbeats_.Dial({kSchedulerNode, {}, 0}, endpoint_);
      return;
    }
    is_heard_ |= std::holds_alternative<HeartbeatAck>(envelope.message);
    if (const auto* update = std::get_if<ViewUpdate>(&envelope.message)) OnView(now, update->view);
    const auto* delta = std::get_if<ViewDelta>(&envelope.message);
    if (delta == nullptr) return;
    const std::optional<SharedView> after = views_.After(view_, *delta->change);
    if (after || delta->change->id <= view_->id) return OnView(now, after.value_or(view_));
    Send(data_, ViewWanted{});
  }
  void OnView(Micros now, const SharedView& view) {
    if (view->id > view_->id) {
      view_ = view;
      entered_at_ = now;
      const auto own = std::ranges::lower_bound(view_->nodes, self_->node, {}, &NodeInfo::node);
      is_in_view_ = own != view_->nodes.end() && own->incarnation == incarnation_;
    }
    Send(data_, ViewAck{view_->id, view_->generation});
  }

  ViewCache& views_;
  const Incarnation incarnation_;
  Transport data_;
  Transport heartbeats_;
  JoinCore join_;
  std::optional<PeerId> self_;
  SharedView view_;
  bool is_heard_ = false;
  bool is_in_view_ = false;
  std::string refusal_;
  Micros heartbeat_at_{0};
  Micros ready_at_{0};
  Micros entered_at_{0};
  const std::string endpoint_;
};

// A process's use of the machine, by the kernel's account.
struct Usage {
  double processor_s = 0;
  double resident_mb = 0;
};
Usage ReadUsage(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::vector<std::string> values;
  for (std::string value; fields >> value;) values.push_back(value);
  if (values.size() < 22) return {};
  const double ticks = std::stod(values[11]) + std::stod(values[12]);
  return {ticks / static_cast<double>(sysconf(_SC_CLK_TCK)),
          std::stod(values[21]) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6};
}

class MembersLoad {
 public:
  explicit MembersLoad(const MembersOptions& options) : options_(options), context_(options.keys) {}

  Result<std::string> Run() {
    PANDO_RETURN_IF_ERROR(Add(options_.first));
    PANDO_RETURN_IF_ERROR(Await("the run's begin", [&] { return AllKnow(options_.first); }));

    Begin();
    while (members_.size() < options_.count) {
      const auto joining =
          std::ranges::count_if(members_, [](const auto& member) { return !member->is_heard(); });
      const auto count = std::min<std::ptrdiff_t>(options_.count, number_ + kJoiningMax - joining);
      PANDO_RETURN_IF_ERROR(Add(static_cast<uint32_t>(count)));
      Turn();
    }
    PANDO_RETURN_IF_ERROR(Await("the joins", [&] { return AllKnow(options_.count); }));
    nlohmann::ordered_json figures{{"joins", Figures()}};

    Rest(2);
    Begin();
    Rest(options_.rest_s);
    figures["rest"] = Figures();

    Begin();
    const ViewId before = members_.front()->view();
    PANDO_RETURN_IF_ERROR(Add(options_.count + 1));
    PANDO_RETURN_IF_ERROR(Await("one more join", [&] { return AllKnow(options_.count + 1); }));
    figures["one join"] = Figures();
    figures["one join"]["spread_s"] = SpreadSince(before);

    Begin();
    members_.pop_back();
    PANDO_RETURN_IF_ERROR(Await("one death", [&] { return AllKnow(options_.count); }));
    figures["one death"] = Figures();

    Begin();
    members_.erase(members_.end() - options_.killed, members_.end());
    PANDO_RETURN_IF_ERROR(
        Await("many deaths", [&] { return AllKnow(options_.count - options_.killed); }));
    figures["many deaths"] = Figures();
    return figures.dump();
  }

 private:
  Status Add(uint32_t count) {
    while (members_.size() < count) {
      const Role role = number_ < options_.servers ? Role::kServer : Role::kWorker;
      members_.push_back(
          std::make_unique<StubMember>(context_, views_, options_.scheduler, number_++, role));
      PANDO_RETURN_IF_ERROR(members_.back()->Dial());
    }
    return Status();
  }
  void Turn() {
    // Other members' heartbeats do not wait for what one has to read: this is one thread.
    for (size_t i = 0; i < members_.size(); ++i) {
      members_[i]->Turn(SteadyNow());
      if (i % 32 != 0) continue;
      for (const auto& member : members_) member->Beat(SteadyNow());
    }
    usleep(2000);
  }
  Status Await(const char* phase, const std::function<bool()>& is_over) {
    const Micros until = SteadyNow() + kPhaseMax;
    while (!is_over()) {
      if (const std::string refusal = Refusal(); !refusal.empty())
        return Unavailable(fmt::format("{}: a member was refused: {}", phase, refusal));
      if (SteadyNow() > until) {
        const auto entered = std::ranges::count_if(
            members_, [](const auto& member) { return member->is_in_view(); });
        return Unavailable(fmt::format("{} did not end: {} of {} members are in their view", phase,
                                       entered, members_.size()));
      }
      Turn();
    }
    return Status();
  }
  std::string Refusal() const {
    for (const auto& member : members_) {
      if (!member->refusal().empty()) return member->refusal();
    }
    return "";
  }
  void Rest(double time_s) {
    const Micros until = SteadyNow() + Micros(static_cast<int64_t>(time_s * 1e6));
    while (SteadyNow() < until) Turn();
  }
  bool AllKnow(size_t count) const {
    return std::ranges::all_of(members_, [&](const auto& member) {
      return member->is_in_view() && member->members_known() == count;
    });
  }
  // Returns the time from the first to the last member that entered the newest view.
  double SpreadSince(ViewId before) const {
    Micros first = kNever, last{0};
    for (const auto& member : members_) {
      if (member->view() <= before) continue;
      first = std::min(first, member->entered_at());
      last = std::max(last, member->entered_at());
    }
    return Seconds(last - first);
  }

  void Begin() {
    begun_at_ = SteadyNow();
    usage_ = ReadUsage(options_.scheduler_pid);
    received_ = context_.traffic().Read(LineKind::kTcp).received;
    view_ = members_.front()->view();
  }
  nlohmann::ordered_json Figures() const {
    const Usage usage = ReadUsage(options_.scheduler_pid);
    const double time_s = Seconds(SteadyNow() - begun_at_);
    const double processor_s = usage.processor_s - usage_.processor_s;
    const uint64_t received = context_.traffic().Read(LineKind::kTcp).received - received_;
    return {{"seconds", time_s},
            {"processor_s", processor_s},
            {"core_percent", 100 * processor_s / time_s},
            {"resident_mb", usage.resident_mb},
            {"received_mb", static_cast<double>(received) / 1e6},
            {"views", members_.front()->view().number - view_.number}};
  }

  const MembersOptions options_;
  mutable ZmqContext context_;
  ViewCache views_;
  std::vector<std::unique_ptr<StubMember>> members_;
  uint32_t number_ = 0;
  Micros begun_at_{0};
  Usage usage_;
  uint64_t received_ = 0;
  ViewId view_;
};

}  // namespace

Result<std::string> MeasureMembers(const MembersOptions& options) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (options.first > options.count || options.killed + options.servers >= options.count)
    return InvalidArgument("--first and --killed are parts of --members");
  return MembersLoad(options).Run();
}

}  // namespace pando::bench
