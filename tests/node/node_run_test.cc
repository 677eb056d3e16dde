#include <doctest/doctest.h>

#include "node/processes.h"

namespace pando {
namespace {

TEST_CASE("automatic workers share the cores out") {
  const auto share = [](uint32_t cores, uint32_t threads) {
    const NodeWorkers s = ChooseShare({.threads = threads}, cores, 0);
    return std::pair(s.worker_count, s.threads);
  };
  using Share = std::pair<uint32_t, uint32_t>;
  CHECK(share(0, 0) == Share{1, 1});  // where the system does not say
  CHECK(share(1, 0) == Share{1, 1});
  CHECK(share(7, 0) == Share{1, 7});
  CHECK(share(16, 0) == Share{2, 8});
  CHECK(share(20, 0) == Share{2, 10});
  CHECK(share(16, 4) == Share{4, 4});
  CHECK(share(2, 4) == Share{1, 4});
}

TEST_CASE("a number of workers that was asked for is what is started") {
  const NodeWorkers share = ChooseShare({.worker_count = 3}, 64, 8);
  CHECK(share.worker_count == 3);
  CHECK(share.threads == 0);  // as the job says
  CHECK(ChooseShare({.worker_count = 0}, 64, 0).worker_count == 0);
}

TEST_CASE("a node with GPUs starts a worker for each, unless a number is given") {
  CHECK(ChooseShare({}, 64, 4).worker_count == 4);
  CHECK(ChooseShare({}, 2, 8).worker_count == 8);
  CHECK(ChooseShare({.worker_count = 2}, 64, 4).worker_count == 2);
}

}  // namespace
}  // namespace pando
