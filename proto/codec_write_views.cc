// The encoder: membership and views.
#include "proto/codec_writer.h"

namespace pando {

void CodecWriter::Write(wire::Envelope::Builder e, const Register& m) {
  auto w = e.initRegister();
  w.setRole(static_cast<wire::Role>(m.role));
  w.setProcessId(m.process_id);
  w.setHost(ToKj(m.host));
  WriteTexts(w.initLaneEndpoints(Count(m.lane_endpoints.size())), m.lane_endpoints);
  w.setWantedRank(m.wanted_rank);
}

void CodecWriter::Write(wire::Envelope::Builder e, const Welcome& m) {
  auto w = e.initWelcome();
  w.setNode(m.node.value());
  w.setRank(m.rank);
  w.setJobToml(ToKj(m.job_toml));
  Write(w.initData(), m.data);
  w.setSnapshotDir(ToKj(m.snapshot_dir));
}

void CodecWriter::Write(wire::DataFacts::Builder w, const DataFacts& data) {
  w.setTrainSamples(data.train_samples);
  w.setTestSamples(data.test_samples);
  w.setHeight(data.shape.height);
  w.setWidth(data.shape.width);
  w.setChannels(data.shape.channels);
  w.setClassCount(data.class_count);
  w.setFingerprint(data.fingerprint);
}

void CodecWriter::Write(wire::Envelope::Builder e, const Refused& m) {
  auto w = e.initRefused();
  w.setReason(ToKj(m.reason));
  w.setKind(static_cast<wire::RefusalKind>(m.kind));
}

void CodecWriter::Write(wire::Envelope::Builder e, const Ready& m) {
  auto w = e.initReady();
  w.setKind(ToKj(m.kind));
  w.setProbeHash(m.probe_hash);
  w.setDataFingerprint(m.data_fingerprint);
}

void CodecWriter::Write(wire::Envelope::Builder e, const Heartbeat& m) {
  auto w = e.initHeartbeat();
  w.setActivity(static_cast<wire::Activity>(m.activity));
  w.setStep(m.step.value());
  Write(w.initWaitingFor(), m.waiting_for);
  w.setWaitingMs(m.waiting_ms);
  w.setMicroBatchUs(m.micro_batch_us);
  w.setDataStallUs(m.data_stall_us);
  w.setExposedSyncUs(m.exposed_sync_us);
  w.setGpuMemoryBytes(m.gpu_memory_bytes);
  w.setGpuPercent(m.gpu_percent);
  w.setTcpLines(m.tcp_lines);
  w.setIpcLines(m.ipc_lines);
  w.setShmLines(m.shm_lines);
}

void CodecWriter::Write(wire::Envelope::Builder e, const HeartbeatAck&) { e.initHeartbeatAck(); }

void CodecWriter::Write(wire::Envelope::Builder e, const ViewUpdate& m) {
  Write(e.initViewUpdate().initView(), m.view);
}

void CodecWriter::Write(wire::View::Builder w, const View& view) {
  Write(w.initId(), view.id);
  w.setGeneration(view.generation);
  auto restore = w.initRestore();
  restore.setVersion(view.restore.version.value());
  restore.setGeneration(view.restore.generation);
  auto nodes = w.initNodes(Count(view.nodes.size()));
  for (unsigned i = 0; i < nodes.size(); ++i) Write(nodes[i], view.nodes[i]);
  auto shards = w.initShards(Count(view.shards.size()));
  for (unsigned i = 0; i < shards.size(); ++i) Write(shards[i], view.shards[i]);
  auto owners = w.initOwners(Count(view.owners.size()));
  for (unsigned i = 0; i < owners.size(); ++i) {
    owners[i].setWorker(view.owners[i].worker.value());
    owners[i].setPrevious(view.owners[i].previous.value());
    owners[i].setFirstStep(view.owners[i].first_step.value());
  }
}

void CodecWriter::Write(wire::NodeInfo::Builder w, const NodeInfo& node) {
  w.setNode(node.node.value());
  w.setRank(node.rank);
  w.setIncarnation(node.incarnation.value());
  w.setRole(static_cast<wire::Role>(node.role));
  w.setHost(ToKj(node.host));
  WriteTexts(w.initLaneEndpoints(Count(node.lane_endpoints.size())), node.lane_endpoints);
  w.setProbeHash(node.probe_hash);
}

void CodecWriter::Write(wire::ShardPlacement::Builder w, const ShardPlacement& placement) {
  Write(w.initPrimary(), placement.primary);
  auto in_sync = w.initInSyncBackups(Count(placement.in_sync_backups.size()));
  for (unsigned i = 0; i < in_sync.size(); ++i) Write(in_sync[i], placement.in_sync_backups[i]);
  auto syncing = w.initSyncingBackups(Count(placement.syncing_backups.size()));
  for (unsigned i = 0; i < syncing.size(); ++i) {
    Write(syncing[i].initPeer(), placement.syncing_backups[i].peer);
    Write(syncing[i].initSince(), placement.syncing_backups[i].since);
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const ViewAck& m) {
  auto w = e.initViewAck();
  Write(w.initId(), m.id);
  w.setGeneration(m.generation);
}

}  // namespace pando
