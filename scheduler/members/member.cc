#include "scheduler/members/member.h"

#include <algorithm>

#include "proto/message_limits.h"

namespace pando {

std::string Member::Name() const {
  return std::string(EnumName(role())) + " " + std::to_string(rank);
}

std::string Member::Where() const {
  return "process " + std::to_string(registration.process_id) + " on " + registration.host;
}

std::vector<PeerId> Member::Peers() const {
  std::vector<PeerId> peers;
  const size_t lanes = std::max<size_t>(1, registration.lane_endpoints.size());
  for (size_t lane = 0; lane < lanes; ++lane) {
    peers.push_back({peer.node, peer.incarnation, static_cast<uint16_t>(lane)});
  }
  return peers;
}

NodeInfo Member::Info() const {
  return {.node = peer.node,
          .incarnation = peer.incarnation,
          .role = role(),
          .rank = rank,
          .host = registration.host,
          .lane_endpoints = registration.lane_endpoints,
          .probe_hash = ready.probe_hash};
}

MemberRecord Member::Record() const {
  return {peer, registration, rank, is_ready, ready, is_draining};
}

Member Member::From(const MemberRecord& record) {
  Member member;
  member.peer = record.peer;
  member.registration = record.registration;
  member.rank = record.rank;
  member.is_ready = record.is_ready;
  member.ready = record.ready;
  member.is_draining = record.is_draining;
  return member;
}

Member* Members::Find(NodeId node) {
  const auto it = members_.find(node);
  return it == members_.end() ? nullptr : &it->second;
}

const Member* Members::Find(NodeId node) const {
  const auto it = members_.find(node);
  return it == members_.end() ? nullptr : &it->second;
}

const Member* Members::Find(Incarnation incarnation) const {
  for (const auto& [node, member] : members_) {
    if (member.peer.incarnation == incarnation) return &member;
  }
  return nullptr;
}

const Member* Members::FindProcess(Role role, const std::string& host, uint32_t process_id) const {
  if (process_id == 0) return nullptr;
  for (const auto& [node, member] : members_) {
    const Register& registration = member.registration;
    if (registration.role == role && registration.host == host &&
        registration.process_id == process_id)
      return &member;
  }
  return nullptr;
}

const Member* Members::FindNamed(const std::string& name) const {
  std::string spaced = name;
  std::ranges::replace(spaced, '-', ' ');
  for (const auto& [node, member] : members_) {
    if (member.Name() == spaced) return &member;
  }
  return nullptr;
}

Member& Members::Add(Member member) {
  const NodeId node = member.peer.node;
  return members_.emplace(node, std::move(member)).first->second;
}

uint32_t Members::FreeRank(Role role, uint32_t wanted) const {
  uint32_t rank = wanted;
  const auto is_taken = [&](const auto& entry) {
    return entry.second.role() == role && entry.second.rank == rank;
  };
  if (wanted < kNodesMax && std::ranges::none_of(members_, is_taken)) return wanted;
  rank = 0;
  while (std::ranges::any_of(members_, is_taken)) ++rank;
  return rank;
}

uint32_t Members::CountReady(Role role) const {
  return static_cast<uint32_t>(std::ranges::count_if(members_, [&](const auto& entry) {
    return entry.second.role() == role && entry.second.takes_part();
  }));
}

std::vector<MemberRecord> Members::Records() const {
  std::vector<MemberRecord> records;
  for (const auto& [node, member] : members_) records.push_back(member.Record());
  return records;
}

std::vector<const Member*> Members::Workers() const {
  std::vector<const Member*> workers;
  for (const auto& [node, member] : members_) {
    if (member.role() == Role::kWorker && member.takes_part()) workers.push_back(&member);
  }
  std::ranges::stable_sort(workers, {}, &Member::rank);
  return workers;
}

// If all are draining, all stay: the job needs a server.
std::vector<PlacementServer> Members::Servers(const std::set<NodeId>& avoided) const {
  std::vector<PlacementServer> servers;
  for (const auto& [node, member] : members_) {
    if (member.role() != Role::kServer || !member.takes_part()) continue;
    servers.push_back({.peer = member.peer,
                       .host = member.registration.host,
                       .lane_count = static_cast<uint16_t>(member.Peers().size()),
                       .is_leaving = member.is_draining,
                       .takes_more = !avoided.contains(node)});
  }
  const bool all = std::ranges::all_of(servers, &PlacementServer::is_leaving);
  if (all) std::ranges::for_each(servers, [](PlacementServer& s) { s.is_leaving = false; });
  return servers;
}

}  // namespace pando
