#include "tests/ptx/operation.h"

#include "tests/ptx/operation_rows.h"

namespace pando::ptx {
namespace {

Operations MakeOperations() {
  Operations table;
  AddIntegerRows(table);
  AddMoveRows(table);
  AddFloatRows(table);
  table["bra"] = table["bra.uni"] = {nullptr, Control::kBranch, {}, {}};
  table["ret"] = table["exit"] = {nullptr, Control::kExit, {}, {}};
  table["bar.sync"] = {nullptr, Control::kBarrier, {}, {4}};
  table["shfl.sync.bfly.b32"] = {nullptr, Control::kShuffle, {4, 0}, {4, 4, 4, 4}};
  return table;
}

}  // namespace

const Operations& AllOperations() {
  static const Operations kTable = MakeOperations();
  return kTable;
}

}  // namespace pando::ptx
