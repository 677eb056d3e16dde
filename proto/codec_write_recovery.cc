// The encoder: replication, snapshots, the end, commands.
#include "proto/codec_writer.h"

namespace pando {
namespace {

template <class FloatList>
void WriteFloats(FloatList w, const std::vector<float>& floats) {
  for (size_t i = 0; i < floats.size(); ++i) w.set(static_cast<unsigned>(i), floats[i]);
}

}  // namespace

// ---- replication

void CodecWriter::Write(wire::Envelope::Builder e, const Root& m) {
  auto w = e.initRoot();
  w.setFirstRow(m.first_row.value());
  auto items = w.initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setStep(m.items[i].step.value());
    Write(items[i].initScalars(), m.items[i].scalars);
    WritePayload(items[i], m.items[i].payload);
    WriteFloats(items[i].initFactors(Count(m.items[i].factors.size())), m.items[i].factors);
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const Partials& m) {
  auto items = e.initPartials().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setStep(m.items[i].step.value());
    WriteFloats(items[i].initValues(Count(m.items[i].values.size())), m.items[i].values);
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const PartialsPull& m) {
  auto items = e.initPartialsPull().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setStep(m.items[i].step.value());
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const RootAck& m) {
  auto items = e.initRootAck().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
    items[i].setHash(m.items[i].hash);
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const Chunk& m) {
  auto w = e.initChunk();
  w.setShard(m.shard.value());
  Write(w.initPair(), m.pair);
  auto versions = w.initVersions(Count(m.versions.size()));
  for (unsigned i = 0; i < versions.size(); ++i) versions.set(i, m.versions[i].value());
  w.setImageFloats(m.image_floats);
  w.setOffset(m.offset);
  WritePayload(w, m.payload);
}

void CodecWriter::Write(wire::Envelope::Builder e, const ChunkAck& m) {
  auto w = e.initChunkAck();
  w.setShard(m.shard.value());
  Write(w.initPair(), m.pair);
  w.setNewest(m.newest.value());
  w.setFloatsTaken(m.floats_taken);
}

void CodecWriter::Write(wire::Envelope::Builder e, const Synced& m) {
  auto items = e.initSynced().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    Write(items[i].initNewcomer(), m.items[i].newcomer);
    Write(items[i].initPair(), m.items[i].pair);
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const Divergence& m) {
  auto w = e.initDivergence();
  w.setShard(m.shard.value());
  w.setVersion(m.version.value());
  Write(w.initBackup(), m.backup);
  w.setPrimaryHash(m.primary_hash);
  w.setBackupHash(m.backup_hash);
}

void CodecWriter::Write(wire::Envelope::Builder e, const PeerSilent& m) {
  auto w = e.initPeerSilent();
  Write(w.initPeer(), m.peer);
  w.setSilentMs(m.silent_ms);
}

// ---- snapshots

void CodecWriter::Write(wire::Envelope::Builder e, const SnapshotStored& m) {
  auto items = e.initSnapshotStored().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
    items[i].setHash(m.items[i].hash);
    items[i].setFile(ToKj(m.items[i].file));
    items[i].setFailure(ToKj(m.items[i].failure));
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const RestoreFailed& m) {
  auto w = e.initRestoreFailed();
  w.setGeneration(m.snapshot.generation);
  w.setVersion(m.snapshot.version.value());
  w.setShard(m.shard.value());
  w.setIsCorrupt(m.is_corrupt);
  w.setText(ToKj(m.text));
}

void CodecWriter::Write(wire::Envelope::Builder e, const SnapshotAck& m) {
  auto items = e.initSnapshotAck().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const SnapshotAt& m) {
  e.initSnapshotAt().setVersion(m.version.value());
}

void CodecWriter::Write(wire::Envelope::Builder e, const SnapshotAtAck& m) {
  e.initSnapshotAtAck().setVersion(m.version.value());
}

// ---- end, failure, status

void CodecWriter::Write(wire::Envelope::Builder e, const Stop& m) {
  auto w = e.initStop();
  w.setReason(static_cast<wire::StopReason>(m.reason));
  w.setText(ToKj(m.text));
}

void CodecWriter::Write(wire::Envelope::Builder e, const Bye&) { e.initBye(); }

void CodecWriter::Write(wire::Envelope::Builder e, const Failure& m) {
  auto w = e.initFailure();
  w.setText(ToKj(m.text));
  w.setKind(static_cast<wire::FailureKind>(m.kind));
}

void CodecWriter::Write(wire::Envelope::Builder e, const StatusRequest&) { e.initStatusRequest(); }

void CodecWriter::Write(wire::Envelope::Builder e, const StatusReport& m) {
  e.initStatusReport().setJson(ToKj(m.json));
}

void CodecWriter::Write(wire::Envelope::Builder e, const Leave&) { e.initLeave(); }

void CodecWriter::Write(wire::Envelope::Builder e, const GradientHashes& m) {
  auto items = e.initGradientHashes().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setStep(m.items[i].step.value());
    items[i].setMicroBatch(m.items[i].micro_batch.value());
    items[i].setHash(m.items[i].hash);
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const GradientHashesAck& m) {
  e.initGradientHashesAck().setBelow(m.below.value());
}

void CodecWriter::Write(wire::Envelope::Builder e, const PicturesReplaced& m) {
  auto items = e.initPicturesReplaced().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setName(ToKj(m.items[i].name));
    items[i].setReason(ToKj(m.items[i].reason));
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const PicturesReplacedAck& m) {
  WriteTexts(e.initPicturesReplacedAck().initNames(Count(m.names.size())), m.names);
}

void CodecWriter::Write(wire::Envelope::Builder e, const Command& m) {
  auto w = e.initCommand();
  w.setKind(static_cast<wire::CommandKind>(m.kind));
  w.setTarget(ToKj(m.target));
}

void CodecWriter::Write(wire::Envelope::Builder e, const CommandReply& m) {
  auto w = e.initCommandReply();
  w.setOutcome(static_cast<wire::CommandOutcome>(m.outcome));
  w.setText(ToKj(m.text));
}

void CodecWriter::Write(wire::Envelope::Builder e, const FaultNote& m) {
  auto w = e.initFaultNote();
  w.setNumber(m.number);
  w.setAction(ToKj(m.action));
  w.setRole(static_cast<wire::Role>(m.role));
  w.setProcessId(m.process_id);
  w.setHost(ToKj(m.host));
  w.setTarget(ToKj(m.target));
  w.setInjectedUs(m.injected_us);
  w.setExitedUs(m.exited_us);
  w.setText(ToKj(m.text));
}

void CodecWriter::Write(wire::Envelope::Builder e, const FaultNoteAck& m) {
  e.initFaultNoteAck().setNumber(m.number);
}

}  // namespace pando
