#include "proto/codec_reader.h"

#include <utility>

namespace pando {

// ---- membership and views

Register CodecReader::Read(wire::Register::Reader r) {
  Register m;
  m.role = ReadEnum("role", r.getRole(), Role::kClient);
  m.host = ReadText("bytes of a host name", r.getHost(), kNameBytesMax);
  m.process_id = r.getProcessId();
  m.lane_endpoints = ReadEndpoints(r.getLaneEndpoints());
  m.wanted_rank = r.getWantedRank();
  return m;
}

std::vector<std::string> CodecReader::ReadEndpoints(capnp::List<capnp::Text>::Reader list) {
  std::vector<std::string> endpoints;
  const unsigned count = Count("lane count", list, kLanesMax);
  for (unsigned i = 0; i < count; ++i) {
    endpoints.push_back(ReadText("bytes of an endpoint", list[i], kNameBytesMax));
  }
  return endpoints;
}

Welcome CodecReader::Read(wire::Welcome::Reader r) {
  Welcome m;
  m.node = ReadNode(r.getNode());
  m.rank = AtMost("rank", r.getRank(), kNodesMax);
  m.job_toml = ReadText("bytes of a job file", r.getJobToml(), kDocumentBytesMax);
  m.data = Read(r.getData());
  m.snapshot_dir = ReadText("bytes of a snapshot folder", r.getSnapshotDir(), kPathBytesMax);
  return m;
}

DataFacts CodecReader::Read(wire::DataFacts::Reader r) {
  DataFacts data;
  data.train_samples = AtMost("training sample count", r.getTrainSamples(), kStepMax);
  data.test_samples = AtMost("test sample count", r.getTestSamples(), kStepMax);
  data.shape = {r.getHeight(), r.getWidth(), r.getChannels()};
  data.class_count = r.getClassCount();
  data.fingerprint = r.getFingerprint();
  const bool is_empty = data.train_samples == 0 || data.class_count == 0 ||
                        data.shape.height == 0 || data.shape.width == 0 || data.shape.channels == 0;
  if (is_empty) Fail("a data set without samples, classes or values");
  return data;
}

Ready CodecReader::Read(wire::Ready::Reader r) {
  Ready m;
  m.kind = ReadText("bytes of a worker kind", r.getKind(), kNameBytesMax);
  m.probe_hash = r.getProbeHash();
  m.data_fingerprint = r.getDataFingerprint();
  return m;
}

Heartbeat CodecReader::Read(wire::Heartbeat::Reader r) {
  Heartbeat m;
  m.activity = ReadEnum("activity", r.getActivity(), Activity::kLeaving);
  m.step = ReadStep(r.getStep());
  m.waiting_for = Read(r.getWaitingFor());
  m.waiting_ms = r.getWaitingMs();
  m.micro_batch_us = r.getMicroBatchUs();
  m.data_stall_us = r.getDataStallUs();
  m.exposed_sync_us = r.getExposedSyncUs();
  m.gpu_memory_bytes = r.getGpuMemoryBytes();
  m.gpu_percent = r.getGpuPercent();
  m.tcp_lines = r.getTcpLines();
  m.ipc_lines = r.getIpcLines();
  m.shm_lines = r.getShmLines();
  return m;
}

View CodecReader::Read(wire::View::Reader r) {
  View view;
  view.id = Read(r.getId());
  view.generation = r.getGeneration();
  view.restore = Read(r.getRestore());
  auto nodes = r.getNodes();
  const unsigned node_count = Count("node count", nodes, kNodesMax);
  for (unsigned i = 0; i < node_count; ++i) view.nodes.push_back(Read(nodes[i]));
  auto shards = r.getShards();
  const unsigned shard_count = Count("shard count", shards, kShardsMax);
  for (unsigned i = 0; i < shard_count; ++i) view.shards.push_back(Read(shards[i]));
  auto owners = r.getOwners();
  const unsigned owner_count = Count("micro-batch count", owners, kMicroBatchesMax);
  for (unsigned i = 0; i < owner_count; ++i) view.owners.push_back(Read(owners[i]));
  return view;
}

SnapshotRef CodecReader::Read(wire::SnapshotRef::Reader r) {
  return {.generation = r.getGeneration(), .version = ReadVersion(r.getVersion())};
}

ViewAck CodecReader::Read(wire::ViewAck::Reader r) {
  return {.id = Read(r.getId()), .generation = r.getGeneration()};
}

NodeInfo CodecReader::Read(wire::NodeInfo::Reader r) {
  NodeInfo node;
  node.node = ReadNode(r.getNode());
  node.incarnation = Incarnation(r.getIncarnation());
  node.role = ReadEnum("role", r.getRole(), Role::kClient);
  node.rank = AtMost("rank", r.getRank(), kNodesMax);
  node.host = ReadText("bytes of a host name", r.getHost(), kNameBytesMax);
  node.lane_endpoints = ReadEndpoints(r.getLaneEndpoints());
  node.probe_hash = r.getProbeHash();
  return node;
}

ShardPlacement CodecReader::Read(wire::ShardPlacement::Reader r) {
  ShardPlacement placement;
  placement.primary = Read(r.getPrimary());
  auto in_sync = r.getInSyncBackups();
  const unsigned in_sync_count = Count("replica count", in_sync, kReplicasMax);
  for (unsigned i = 0; i < in_sync_count; ++i)
    placement.in_sync_backups.push_back(Read(in_sync[i]));
  auto syncing = r.getSyncingBackups();
  const unsigned syncing_count = Count("syncing replica count", syncing, kReplicasMax);
  for (unsigned i = 0; i < syncing_count; ++i) {
    placement.syncing_backups.push_back(
        {.peer = Read(syncing[i].getPeer()), .since = Read(syncing[i].getSince())});
  }
  return placement;
}

MicroBatchOwner CodecReader::Read(wire::MicroBatchOwner::Reader r) {
  MicroBatchOwner owner;
  owner.worker = ReadNode(r.getWorker());
  owner.first_step = ReadStep(r.getFirstStep());
  owner.previous = ReadNode(r.getPrevious());
  return owner;
}

}  // namespace pando
