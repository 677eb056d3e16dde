// The encoder: the step, scalars, progress, evaluation.
#include "proto/codec_writer.h"

namespace pando {

void CodecWriter::Write(wire::Envelope::Builder e, const Push& m) {
  auto items = e.initPush().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setNode(m.items[i].node.value());
    items[i].setStep(m.items[i].step.value());
    WritePayload(items[i], m.items[i].payload);
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const Pull& m) {
  auto items = e.initPull().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
    items[i].setForm(static_cast<wire::ParamsForm>(m.items[i].form));
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const Params& m) {
  auto items = e.initParams().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
    items[i].setForm(static_cast<wire::ParamsForm>(m.items[i].form));
    WritePayload(items[i], m.items[i].payload);
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const PushReply& m) {
  auto items = e.initPushReply().initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setNode(m.items[i].node.value());
    items[i].setVersion(m.items[i].version.value());
    items[i].setOutcome(static_cast<wire::PushOutcome>(m.items[i].outcome));
    items[i].setCurrent(m.items[i].current.value());
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const Question& m) {
  Write(e.initQuestion().initView(), m.view);
}

void CodecWriter::Write(wire::Envelope::Builder e, const Answer& m) {
  auto w = e.initAnswer();
  Write(w.initView(), m.view);
  auto items = w.initItems(Count(m.items.size()));
  for (unsigned i = 0; i < items.size(); ++i) {
    items[i].setShard(m.items[i].shard.value());
    items[i].setVersion(m.items[i].version.value());
    auto nodes = items[i].initNodes(Count(m.items[i].nodes.size()));
    for (unsigned n = 0; n < nodes.size(); ++n) nodes.set(n, m.items[i].nodes[n].value());
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const ScalarsRequest& m) {
  e.initScalarsRequest().setFirst(m.first.value());
}

void CodecWriter::Write(wire::Envelope::Builder e, const Scalars& m) {
  auto w = e.initScalars();
  w.setFirst(m.first.value());
  auto steps = w.initSteps(Count(m.steps.size()));
  for (unsigned i = 0; i < steps.size(); ++i) Write(steps[i], m.steps[i]);
}

void CodecWriter::Write(wire::StepScalars::Builder w, const StepScalars& scalars) {
  w.setLr(scalars.lr);
  w.setMomentum(scalars.momentum);
  w.setBiasCorrection1(scalars.bias_correction1);
  w.setBiasCorrection2Sqrt(scalars.bias_correction2_sqrt);
}

void CodecWriter::Write(wire::Envelope::Builder e, const Progress& m) {
  auto w = e.initProgress();
  w.setCommitted(m.committed.value());
  auto rows = w.initRows(Count(m.rows.size()));
  for (unsigned i = 0; i < rows.size(); ++i) {
    rows[i].setStep(m.rows[i].step.value());
    rows[i].setLoss(m.rows[i].loss);
    rows[i].setAccuracy(m.rows[i].accuracy);
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const ProgressAck& m) {
  auto w = e.initProgressAck();
  w.setCommitted(m.committed.value());
  w.setNextRow(m.next_row.value());
}

void CodecWriter::Write(wire::Envelope::Builder e, const Evaluate& m) {
  auto w = e.initEvaluate();
  w.setVersion(m.version.value());
  w.setSlice(m.slice);
  w.setFirstSample(m.first_sample);
  w.setLastSample(m.last_sample);
}

void CodecWriter::Write(wire::Envelope::Builder e, const EvaluationResult& m) {
  auto w = e.initEvaluationResult();
  w.setVersion(m.version.value());
  w.setSlice(m.slice);
  w.setSampleCount(m.sample_count);
  w.setCorrectCount(m.correct_count);
  w.setLossSum(m.loss_sum);
  w.setTop5Count(m.top5_count);
  auto confusion = w.initConfusion(static_cast<unsigned>(m.confusion.size()));
  for (unsigned i = 0; i < confusion.size(); ++i) {
    confusion[i].setLabel(m.confusion[i].label);
    confusion[i].setPredicted(m.confusion[i].predicted);
    confusion[i].setCount(m.confusion[i].count);
  }
}

void CodecWriter::Write(wire::Envelope::Builder e, const ReleasePin& m) {
  e.initReleasePin().setVersion(m.version.value());
}

void CodecWriter::Write(wire::Envelope::Builder e, const PinReleased& m) {
  e.initPinReleased().setVersion(m.version.value());
}

}  // namespace pando
