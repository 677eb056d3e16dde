#include "scheduler/members/members.h"

#include <fmt/core.h>

#include <algorithm>
#include <ranges>

#include "common/endpoint.h"
#include "proto/message_limits.h"

namespace pando {

std::string Member::Name() const { return fmt::format("{} {}", EnumName(role()), rank); }

std::string Member::Where() const {
  return fmt::format("process {} on {}", registration.process_id, registration.host);
}

std::string Member::Description() const { return fmt::format("{} ({})", Name(), Where()); }

std::vector<PeerId> Member::Peers() const {
  std::vector<PeerId> peers;
  const size_t lanes = std::max<size_t>(1, registration.lane_endpoints.size());
  for (size_t lane = 0; lane < lanes; ++lane) {
    peers.push_back({peer.node, peer.incarnation, static_cast<uint16_t>(lane)});
  }
  return peers;
}

Member* Members::Find(NodeId node) {
  const auto it = members_.find(node);
  return it == members_.end() ? nullptr : &it->second;
}

const Member* Members::Find(NodeId node) const {
  const auto it = members_.find(node);
  return it == members_.end() ? nullptr : &it->second;
}

template <class Predicate>
const Member* Members::FindIf(Predicate is_it) const {
  const auto it = std::ranges::find_if(members_, is_it, &std::pair<const NodeId, Member>::second);
  return it == members_.end() ? nullptr : &it->second;
}

const Member* Members::Find(Incarnation incarnation) const {
  const auto it = by_incarnation_.find(incarnation);
  return it == by_incarnation_.end() ? nullptr : it->second;
}

const Member* Members::FindProcess(Role role, const ProcessName& process) const {
  if (process.process_id == 0) return nullptr;
  return FindIf([&](const Member& member) {
    return member.role() == role && ProcessFor(member.registration) == process;
  });
}

const Member* Members::FindNamed(const std::string& name) const {
  std::string spaced = name;
  std::ranges::replace(spaced, '-', ' ');
  return FindIf([&](const Member& member) { return member.Name() == spaced; });
}

Member& Members::Add(Member member) {
  const NodeId node = member.peer.node;
  Member& added = members_.emplace(node, std::move(member)).first->second;
  by_incarnation_[added.peer.incarnation] = &added;
  lists_.reset();
  return added;
}

void Members::Remove(NodeId node) {
  by_incarnation_.erase(members_.at(node).peer.incarnation);
  members_.erase(node);
  lists_.reset();
}

void Members::MarkReady(Member& member, const Ready& ready) {
  member.is_ready = true;
  member.ready = ready;
  lists_.reset();
}

void Members::MarkDraining(NodeId node) {
  members_.at(node).is_draining = true;
  lists_.reset();
}

void Members::MarkLeaving(NodeId node) {
  members_.at(node).is_leaving = true;
  lists_.reset();
}

uint32_t Members::FreeRank(Role role, uint32_t wanted) const {
  std::set<uint32_t> taken;
  for (const auto& [node, member] : members_) {
    if (member.role() == role) taken.insert(member.rank);
  }
  if (wanted < kNodesMax && !taken.contains(wanted)) return wanted;
  uint32_t rank = 0;
  while (taken.contains(rank)) ++rank;
  return rank;
}

const Members::Lists& Members::lists() const {
  if (lists_) return *lists_;
  lists_.emplace();
  for (const auto& [node, member] : members_) {
    if (member.is_draining && !member.is_leaving) lists_->draining.push_back(&member);
    if (!member.takes_part()) continue;
    (member.role() == Role::kServer ? lists_->servers : lists_->workers).push_back(&member);
  }
  lists_->workers_by_rank = lists_->workers;
  std::ranges::stable_sort(lists_->workers_by_rank, {}, &Member::rank);
  return *lists_;
}

const std::vector<const Member*>& Members::TakingPart(Role role) const {
  return role == Role::kServer ? lists().servers : lists().workers;
}

const std::vector<const Member*>& Members::Workers() const { return lists().workers_by_rank; }

std::vector<MemberRecord> Members::Records() const {
  const auto members = std::views::values(members_);
  return {members.begin(), members.end()};
}

std::vector<NodeInfo> Members::NodeInfos(SumUse rack_sum, const View& last) const {
  std::set<std::string> hosts;
  const std::vector<const Member*>& workers = TakingPart(Role::kWorker);
  for (const Member* worker : workers) hosts.insert(worker->registration.host);
  // Several workers of one host sum there, which saves more.
  const bool pays = hosts.size() > kHostsWithoutRackSums && hosts.size() == workers.size();
  const bool had_racks = !std::ranges::all_of(last.nodes, &std::string::empty, &NodeInfo::rack);
  const bool names_racks =
      rack_sum == SumUse::kAlways || (rack_sum == SumUse::kAuto && (pays || had_racks));
  // Returns whether the workers of the member's rack reach it.
  const auto is_reached = [&](const std::vector<std::string>& endpoints) {
    return hosts.size() < 2 || std::ranges::none_of(endpoints, IsOfOneMachine);
  };
  std::vector<NodeInfo> infos;
  for (const auto& [node, member] : members_) {
    if (!member.takes_part()) continue;
    infos.push_back({.node = node,
                     .incarnation = member.peer.incarnation,
                     .role = member.role(),
                     .rank = member.rank,
                     .host = member.registration.host,
                     .lane_endpoints = member.registration.lane_endpoints,
                     .probe_hash = member.ready.probe_hash,
                     .public_key = member.registration.public_key,
                     .rack = names_racks && is_reached(member.registration.lane_endpoints)
                                 ? member.registration.rack
                                 : std::string()});
  }
  return infos;
}

std::vector<PlacementServer> Members::Servers(const std::set<NodeId>& avoided) const {
  std::vector<PlacementServer> servers;
  // A machine without a label counts as a rack.
  const auto rack_of = [&](const Member* server) {
    const std::string& rack = server->registration.rack;
    return rack.empty() ? "machine " + MachineFor(server->registration) : "rack " + rack;
  };
  std::set<std::string> racks;
  for (const Member* server : TakingPart(Role::kServer)) racks.insert(rack_of(server));
  for (const Member* server : TakingPart(Role::kServer)) {
    servers.push_back(
        {.peer = server->peer,
         .domain = racks.size() > 1 ? rack_of(server) : MachineFor(server->registration),
         .lane_count = static_cast<uint16_t>(server->Peers().size()),
         .is_leaving = server->is_draining,
         .takes_more = !avoided.contains(server->peer.node)});
  }
  const bool all = std::ranges::all_of(servers, &PlacementServer::is_leaving);
  if (all) std::ranges::for_each(servers, [](PlacementServer& s) { s.is_leaving = false; });
  return servers;
}

}  // namespace pando
