#include "proto/codec_reader.h"

#include <utility>

namespace pando {

// ---- replication

Root CodecReader::Read(wire::Root::Reader r) {
  Root m;
  m.first_row = ReadStep(r.getFirstRow());
  auto items = r.getItems();
  const unsigned count = Count("roots in a message", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back(
        {.shard = ReadShard(items[i].getShard()),
         .step = ReadStep(items[i].getStep()),
         .scalars = Read(items[i].getScalars()),
         .payload = ReadPayload(items[i].getPayload()),
         .factors = ReadFloats("factors of a shard", items[i].getFactors(), kPartialsPerShardMax)});
  }
  return m;
}

Partials CodecReader::Read(wire::Partials::Reader r) {
  Partials m;
  auto items = r.getItems();
  const unsigned count = Count("shards in a message", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back({.shard = ReadShard(items[i].getShard()),
                       .step = ReadStep(items[i].getStep()),
                       .values = ReadFloats("partial values of a shard", items[i].getValues(),
                                            kPartialsPerShardMax)});
  }
  return m;
}

PartialsPull CodecReader::Read(wire::PartialsPull::Reader r) {
  PartialsPull m;
  auto items = r.getItems();
  const unsigned count = Count("pulls in a message", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back(
        {.shard = ReadShard(items[i].getShard()), .step = ReadStep(items[i].getStep())});
  }
  return m;
}

RootAck CodecReader::Read(wire::RootAck::Reader r) {
  RootAck m;
  auto items = r.getItems();
  const unsigned count = Count("root acknowledgements", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back({.shard = ReadShard(items[i].getShard()),
                       .version = ReadVersion(items[i].getVersion()),
                       .hash = items[i].getHash()});
  }
  return m;
}

Chunk CodecReader::Read(wire::Chunk::Reader r) {
  Chunk m;
  m.shard = ReadShard(r.getShard());
  m.pair = Read(r.getPair());
  auto versions = r.getVersions();
  const unsigned count = Count("versions of an image", versions, kImageVersionsMax);
  for (unsigned i = 0; i < count; ++i) {
    m.versions.push_back(ReadVersion(versions[i]));
    if (i > 0 && m.versions[i - 1] >= m.versions[i])
      Fail("versions of an image that do not ascend");
  }
  m.image_floats = AtMost("floats of an image", r.getImageFloats(), kImageFloatsMax);
  m.offset = AtMost("offset of a chunk", r.getOffset(), m.image_floats);
  m.payload = ReadPayload(r.getPayload());
  AtMost("end of a chunk", m.offset + m.payload.size_bytes() / sizeof(float), m.image_floats);
  return m;
}

ChunkAck CodecReader::Read(wire::ChunkAck::Reader r) {
  ChunkAck m;
  m.shard = ReadShard(r.getShard());
  m.pair = Read(r.getPair());
  m.newest = ReadVersion(r.getNewest());
  m.floats_taken = AtMost("floats taken of an image", r.getFloatsTaken(), kImageFloatsMax);
  return m;
}

Synced CodecReader::Read(wire::Synced::Reader r) {
  Synced m;
  auto items = r.getItems();
  const unsigned count = Count("synced shards", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back({.shard = ReadShard(items[i].getShard()),
                       .newcomer = Read(items[i].getNewcomer()),
                       .pair = Read(items[i].getPair())});
  }
  return m;
}

Divergence CodecReader::Read(wire::Divergence::Reader r) {
  return {.shard = ReadShard(r.getShard()),
          .version = ReadVersion(r.getVersion()),
          .backup = Read(r.getBackup()),
          .primary_hash = r.getPrimaryHash(),
          .backup_hash = r.getBackupHash()};
}

PeerSilent CodecReader::Read(wire::PeerSilent::Reader r) {
  return {.peer = Read(r.getPeer()), .silent_ms = r.getSilentMs()};
}

// ---- snapshots

SnapshotStored CodecReader::Read(wire::SnapshotStored::Reader r) {
  SnapshotStored m;
  auto items = r.getItems();
  const unsigned count = Count("stored shards", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back(
        {.shard = ReadShard(items[i].getShard()),
         .version = ReadVersion(items[i].getVersion()),
         .hash = items[i].getHash(),
         .file = ReadText("bytes of a file name", items[i].getFile(), kNameBytesMax),
         .failure = ReadText("bytes of a failure", items[i].getFailure(), kTextBytesMax)});
    // It is opened within the snapshot folder and nowhere else.
    if (m.items.back().file.find('/') != std::string::npos) Fail("a file name with a folder in it");
  }
  return m;
}

RestoreFailed CodecReader::Read(wire::RestoreFailed::Reader r) {
  return {.snapshot = {r.getGeneration(), ReadVersion(r.getVersion())},
          .shard = ReadShard(r.getShard()),
          .is_corrupt = r.getIsCorrupt(),
          .text = ReadText("bytes of a failure", r.getText(), kTextBytesMax)};
}

SnapshotAck CodecReader::Read(wire::SnapshotAck::Reader r) {
  SnapshotAck m;
  auto items = r.getItems();
  const unsigned count = Count("snapshot acknowledgements", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back(
        {.shard = ReadShard(items[i].getShard()), .version = ReadVersion(items[i].getVersion())});
  }
  return m;
}

// ---- end, commands, faults

Stop CodecReader::Read(wire::Stop::Reader r) {
  return {.reason = ReadEnum("stop reason", r.getReason(), StopReason::kDrained),
          .text = ReadText("bytes of a stop text", r.getText(), kTextBytesMax)};
}

Command CodecReader::Read(wire::Command::Reader r) {
  return {.kind = ReadEnum("command", r.getKind(), CommandKind::kStop),
          .target = ReadText("bytes of a target", r.getTarget(), kNameBytesMax)};
}

CommandReply CodecReader::Read(wire::CommandReply::Reader r) {
  return {.outcome = ReadEnum("command outcome", r.getOutcome(), CommandOutcome::kRefused),
          .text = ReadText("bytes of a command's reply", r.getText(), kTextBytesMax)};
}

FaultNote CodecReader::Read(wire::FaultNote::Reader r) {
  return {.number = r.getNumber(),
          .action = ReadText("bytes of a fault's action", r.getAction(), kNameBytesMax),
          .role = ReadEnum("role", r.getRole(), Role::kClient),
          .host = ReadText("bytes of a host name", r.getHost(), kNameBytesMax),
          .process_id = r.getProcessId(),
          .target = ReadText("bytes of a target", r.getTarget(), kNameBytesMax),
          .injected_us = r.getInjectedUs(),
          .exited_us = r.getExitedUs(),
          .text = ReadText("bytes of a fault's text", r.getText(), kTextBytesMax)};
}

}  // namespace pando
