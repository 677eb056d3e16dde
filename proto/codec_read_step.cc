#include "proto/codec_reader.h"

#include <utility>

namespace pando {

// ---- the step

Push CodecReader::Read(wire::Push::Reader r) {
  Push m;
  auto items = r.getItems();
  const unsigned count = Count("pushes in a message", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back({.shard = ReadShard(items[i].getShard()),
                       .step = ReadStep(items[i].getStep()),
                       .node = ReadTreeNode(items[i].getNode(), 1),
                       .payload = ReadPayload(items[i].getPayload())});
  }
  return m;
}

Pull CodecReader::Read(wire::Pull::Reader r) {
  Pull m;
  auto items = r.getItems();
  const unsigned count = Count("pulls in a message", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back({.shard = ReadShard(items[i].getShard()),
                       .version = ReadVersion(items[i].getVersion()),
                       .form = ReadEnum("form", items[i].getForm(), ParamsForm::kEncoded)});
  }
  return m;
}

Params CodecReader::Read(wire::Params::Reader r) {
  Params m;
  auto items = r.getItems();
  const unsigned count = Count("shards in a message", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back({.shard = ReadShard(items[i].getShard()),
                       .version = ReadVersion(items[i].getVersion()),
                       .payload = ReadPayload(items[i].getPayload()),
                       .form = ReadEnum("form", items[i].getForm(), ParamsForm::kEncoded)});
  }
  return m;
}

PushReply CodecReader::Read(wire::PushReply::Reader r) {
  PushReply m;
  auto items = r.getItems();
  const unsigned count = Count("replies in a message", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back(
        {.shard = ReadShard(items[i].getShard()),
         .version = ReadVersion(items[i].getVersion()),
         .node = ReadTreeNode(items[i].getNode(), 0),
         .outcome = ReadEnum("push outcome", items[i].getOutcome(), PushOutcome::kNotPrimary),
         .current = ReadVersion(items[i].getCurrent())});
  }
  return m;
}

Answer CodecReader::Read(wire::Answer::Reader r) {
  Answer m;
  m.view = Read(r.getView());
  auto items = r.getItems();
  const unsigned count = Count("shards in an answer", items, kItemsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    AnswerItem item{.shard = ReadShard(items[i].getShard()),
                    .version = ReadVersion(items[i].getVersion())};
    auto nodes = items[i].getNodes();
    const unsigned node_count = Count("tree nodes of a shard", nodes, kMicroBatchesMax);
    for (unsigned n = 0; n < node_count; ++n) item.nodes.push_back(ReadTreeNode(nodes[n], 1));
    m.items.push_back(std::move(item));
  }
  return m;
}

// ---- scalars and progress

Scalars CodecReader::Read(wire::Scalars::Reader r) {
  Scalars m;
  m.first = ReadStep(r.getFirst());
  auto steps = r.getSteps();
  const unsigned count = Count("steps of scalars", steps, kScalarsPerBlock);
  for (unsigned i = 0; i < count; ++i) m.steps.push_back(Read(steps[i]));
  return m;
}

StepScalars CodecReader::Read(wire::StepScalars::Reader r) {
  return {.lr = r.getLr(),
          .momentum = r.getMomentum(),
          .bias_correction1 = r.getBiasCorrection1(),
          .bias_correction2_sqrt = r.getBiasCorrection2Sqrt()};
}

Progress CodecReader::Read(wire::Progress::Reader r) {
  Progress m;
  m.committed = ReadVersion(r.getCommitted());
  auto rows = r.getRows();
  const unsigned count = Count("metric rows", rows, kMetricRowsPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.rows.push_back({.step = ReadStep(rows[i].getStep()),
                      .loss = rows[i].getLoss(),
                      .accuracy = rows[i].getAccuracy()});
  }
  return m;
}

ProgressAck CodecReader::Read(wire::ProgressAck::Reader r) {
  return {.committed = ReadVersion(r.getCommitted()), .next_row = ReadStep(r.getNextRow())};
}

// ---- evaluation

Evaluate CodecReader::Read(wire::Evaluate::Reader r) {
  Evaluate m;
  m.version = ReadVersion(r.getVersion());
  m.slice = r.getSlice();
  m.first_sample = r.getFirstSample();
  m.last_sample = AtMost("sample index", r.getLastSample(), kStepMax);
  if (m.first_sample > m.last_sample) Fail("an evaluation slice that ends before it begins");
  return m;
}

EvaluationResult CodecReader::Read(wire::EvaluationResult::Reader r) {
  EvaluationResult m;
  m.version = ReadVersion(r.getVersion());
  m.slice = r.getSlice();
  m.sample_count = AtMost("sample count", r.getSampleCount(), kStepMax);
  m.correct_count = AtMost("correct count", r.getCorrectCount(), m.sample_count);
  m.loss_sum = r.getLossSum();
  m.top5_count = AtMost("top-5 count", r.getTop5Count(), m.sample_count);
  auto confusion = r.getConfusion();
  const unsigned count = Count("confusion counts", confusion, kConfusionCountsMax);
  for (unsigned i = 0; i < count; ++i) {
    m.confusion.push_back({.label = confusion[i].getLabel(),
                           .predicted = confusion[i].getPredicted(),
                           .count = confusion[i].getCount()});
  }
  return m;
}

// ---- checks of the machines

GradientHashes CodecReader::Read(wire::GradientHashes::Reader r) {
  GradientHashes m;
  auto items = r.getItems();
  const unsigned count = Count("gradient hashes", items, kGradientHashesPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back({.step = ReadStep(items[i].getStep()),
                       .micro_batch = MicroBatch(
                           AtMost("micro-batch", items[i].getMicroBatch(), kMicroBatchesMax - 1)),
                       .hash = items[i].getHash()});
  }
  return m;
}

// ---- bad pictures

PicturesReplaced CodecReader::Read(wire::PicturesReplaced::Reader r) {
  PicturesReplaced m;
  auto items = r.getItems();
  const unsigned count = Count("bad pictures", items, kPicturesPerMessageMax);
  for (unsigned i = 0; i < count; ++i) {
    m.items.push_back({.name = ReadText("picture name", items[i].getName(), kNameBytesMax),
                       .reason = ReadText("picture reason", items[i].getReason(), kNameBytesMax)});
  }
  return m;
}

PicturesReplacedAck CodecReader::Read(wire::PicturesReplacedAck::Reader r) {
  PicturesReplacedAck m;
  auto names = r.getNames();
  const unsigned count = Count("bad pictures", names, kPicturesPerMessageMax);
  for (unsigned i = 0; i < count; ++i)
    m.names.push_back(ReadText("picture name", names[i], kNameBytesMax));
  return m;
}

}  // namespace pando
