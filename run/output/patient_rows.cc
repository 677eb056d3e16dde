#include "run/output/patient_rows.h"

namespace pando {

Status PatientRows::Append(std::string row) {
  if (held_bytes_ + row.size() > kHeldBytesMax) {
    Status status = Flush();
    if (!status.ok()) {
      ++lost_count_;
      return status;
    }
  }
  held_bytes_ += row.size();
  held_.push_back(std::move(row));
  return Flush();
}

Status PatientRows::Flush() {
  while (!held_.empty()) {
    PANDO_RETURN_IF_ERROR(file_.Append(held_.front()));
    held_bytes_ -= held_.front().size();
    held_.pop_front();
  }
  return Status();
}

Status PatientRows::Sync() {
  PANDO_RETURN_IF_ERROR(Flush());
  return file_.Sync();
}

}  // namespace pando
