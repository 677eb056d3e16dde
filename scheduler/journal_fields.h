// These functions visit the fields of the journal's records that are not messages. Fields of
// messages are visited in proto/codec_fields.h, and those of a fault beside its struct. Files that
// write these records as JSON (files/json_fields.h) include this header.
#pragma once

#include "proto/named_fields.h"
#include "scheduler/journal.h"

namespace pando {

void Visit(auto io, MemberRecord& m) {
  io(PANDO_FIELD(m.peer), PANDO_FIELD(m.rank), PANDO_FIELD(m.is_ready), PANDO_FIELD(m.is_draining),
     PANDO_FIELD(m.registration), PANDO_FIELD(m.ready));
}

void Visit(auto io, StoredShard& m) { io(PANDO_FIELD(m.hash), PANDO_FIELD(m.file)); }

void Visit(auto io, SnapshotManifest& m) {
  io(NamedField{"generation", m.snapshot.generation}, NamedField{"version", m.snapshot.version},
     PANDO_FIELD(m.shards));
}

void Visit(auto io, GivenUpSnapshots& m) { io(PANDO_FIELD(m.below), PANDO_FIELD(m.versions)); }

void Visit(auto io, ClassScore& m) {
  io(PANDO_FIELD(m.sample_count), PANDO_FIELD(m.correct_count));
}

void Visit(auto io, EvaluationSummary& m) {
  io(PANDO_FIELD(m.version), PANDO_FIELD(m.sample_count), PANDO_FIELD(m.correct_count),
     NamedField{"loss_sum", AnyNumber{m.loss_sum}}, PANDO_FIELD(m.top5_count),
     PANDO_FIELD(m.classes), PANDO_FIELD(m.confusion), PANDO_FIELD(m.sums),
     PANDO_OPTIONAL(m.stop_text));
}

void Visit(auto io, Opinion& m) {
  io(PANDO_FIELD(m.worker), PANDO_FIELD(m.name), PANDO_FIELD(m.probe_hash), PANDO_FIELD(m.hash));
}

void Visit(auto io, Dispute& m) {
  io(PANDO_FIELD(m.generation), PANDO_FIELD(m.step), PANDO_FIELD(m.micro_batch),
     PANDO_FIELD(m.first), PANDO_FIELD(m.second));
}

// Visits the fields that have no separate record.
void Visit(auto io, SchedulerState& m) {
  io(PANDO_FIELD(m.job), PANDO_FIELD(m.term), PANDO_FIELD(m.next_node), PANDO_FIELD(m.given_up),
     NamedField{"settled_below", m.verification.settled_below},
     NamedField{"agreed_count", m.verification.agreed_count},
     NamedField{"unverified_count", m.verification.unverified_count},
     NamedField{"open_dispute", m.verification.open_dispute}, PANDO_FIELD(m.distrusted_machines),
     NamedField{"is_finished", m.is_completed});
}

}  // namespace pando
