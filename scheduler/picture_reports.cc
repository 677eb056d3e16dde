#include "scheduler/picture_reports.h"

#include <utility>

namespace pando {

PictureReports::PictureReports(const JobPlan& plan, const std::optional<SchedulerState>& state,
                               JournaledOutbox& outbox, RunPhase& phase)
    : outbox_(outbox), phase_(phase), pictures_(plan.job.bad_pictures_max) {
  if (state) pictures_.AddAll(state->bad_pictures);
}

void PictureReports::OnPicturesReplaced(Micros now, const PeerId& from,
                                        const PicturesReplaced& replaced) {
  PicturesReplacedAck ack;
  for (const BadPicture& picture : replaced.items) {
    ack.names.push_back(picture.name);
    if (phase_.is_ending() || !pictures_.Add(picture)) continue;
    outbox_.MarkChanged();
    outbox_.Tell(now, "bad-picture", "", pictures_.TextOf(picture), /*is_notable=*/true);
  }
  outbox_.Send(from, std::move(ack));
  const Status verdict = pictures_.Verdict();
  if (!verdict.ok()) phase_.End(now, StopReason::kFailed, verdict.message());
}

}  // namespace pando
