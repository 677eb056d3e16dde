#include "run/patient_rows.h"

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
    if (Status s = file_.Append(held_.front()); !s.ok()) return s;
    held_bytes_ -= held_.front().size();
    held_.pop_front();
  }
  return Status();
}

Status PatientRows::Sync() {
  if (Status s = Flush(); !s.ok()) return s;
  return file_.Sync();
}

}  // namespace pando
