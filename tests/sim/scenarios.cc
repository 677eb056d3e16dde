#include "tests/sim/scenarios.h"

#include <array>

namespace pando::sim {
namespace {

constexpr std::array kScenarios{
    Scenario{"a silent server's lease decides, not its last worker's report", 39},
    Scenario{"after its own pause the scheduler believes no report of silence", 3590},
    Scenario{"a lane that has its view from a worker learns the scheduler too", 3724},
    Scenario{"a generation that begins at the last version needs no other snapshot", 3778},
    Scenario{"a node that is drained while the run gathers may leave a new scheduler", 134045},
    Scenario{"a scheduler writes nothing after its successor has read the journal", 116217},
    Scenario{"a run that is stopped while an earlier version is stored stores its last one too",
             5691},
    Scenario{"a verification does not wait for parameters that never come", 2399},
    Scenario{"a snapshot that a lost scheduler gives up and its successor completes stays", 468398},
    Scenario{"a generation's snapshot may be forgotten if no server can read it", 499894},
    Scenario{"a wrong bit stays where its verifier has no parameters any more", 976845},
    Scenario{"a lane that has the newest view from a member hears its scheduler all the same",
             971882},
    Scenario{"what a run was asked before its power went is forgotten", 709071},
    Scenario{"a row that a scheduler took after its successor began is not waited for", 210823},
    Scenario{"a contribution that another lane holds is not taken for held", 3335,
             Focus::kSilences},
    Scenario{"a relay that pushes before it computes still asks for what it computes with", 4019,
             Focus::kRacks},
    Scenario{"a question is repeated although another version was acknowledged", 202332},
    Scenario{"a version made from a backup's root completes its lane's sum", 200842, Focus::kVotes},
    Scenario{"a part of a declaration that waited for the next scheduler refuses no worker", 72,
             Focus::kDeclared},
};

}  // namespace

std::span<const Scenario> Scenarios() { return kScenarios; }

}  // namespace pando::sim
