"""The table of the scheduler's parts and their constructors agree."""
import unittest

from fixture import LintTest
import parts

TABLE = """// clang-format off
//   part     | owns            | knows
//   ---------+-----------------+------
//   a Views  | the newest view |
//   b Outbox | messages        | a
//   c Phase  | the phase       | .b
// clang-format on
"""
BUILDER = """struct SchedulerParts {
  const JobPlan& plan;
  Views views{};
  Outbox outbox{plan,
                views};
  Phase phase{outbox};
};
"""
VIEWS = "class Views {\n public:\n  explicit Views(const std::optional<State>& state);\n};\n"
OUTBOX = """class Outbox : public Base {
 public:
  Outbox(const Identity& identity, Journal& journal,
         const Views& views)
      : journal_(journal), views_(views) {}
};
"""
PHASE = "class Phase {\n public:\n  Phase(Outbox& outbox, Micros grace);\n};\n"


class PartsTest(LintTest):
    def check(self, table=TABLE, builder=BUILDER, views=VIEWS, outbox=OUTBOX, phase=PHASE):
        return parts.check_parts(self.project({
            "scheduler/scheduler.h": table, "scheduler/scheduler_parts.h": builder, "scheduler/views.h": views,
            "scheduler/outbox.h": outbox, "scheduler/phase.h": phase}))

    def test_a_table_like_the_constructors_is_accepted(self):
        self.expect(self.check())
        self.expect(parts.check_parts(self.project({"a.h": ""})))

    def test_a_part_that_knows_another_one_than_the_table_says_is_found(self):
        self.expect(self.check(phase=PHASE.replace("Outbox& outbox", "const Views& views, Outbox& outbox")),
                    ("scheduler/scheduler.h", 6, "Phase knows .b, its constructor ab"))
        self.expect(self.check(outbox=OUTBOX.replace("const Views& views", "ViewSeal* seal")),
                    ("scheduler/scheduler.h", 5, "Outbox knows a, its constructor none"))

    def test_a_part_that_knows_one_below_it_is_found(self):
        found = self.check(table=TABLE.replace("view |", "view | .b"),
                           views=VIEWS.replace("optional<State>& state", "optional<State>& state, Outbox& outbox"))
        self.expect(found, ("scheduler/views.h", 1, "below it"))

    def test_the_table_has_all_parts_in_their_order(self):
        self.expect(self.check(builder=BUILDER.replace("{outbox};\n", "{outbox};\n  Faults faults{};\n")),
                    ("scheduler/scheduler.h", 1, "Views Outbox Phase Faults"))

    def test_a_part_knows_what_its_base_has(self):
        base = "class SchedulerPart {\n public:\n  SchedulerPart(const Views& views, Outbox& outbox);\n};\n"
        phase = base + PHASE.replace("Outbox& outbox", "const SchedulerPart& part")
        self.expect(self.check(phase=phase), ("scheduler/scheduler.h", 6, "Phase knows .b, its constructor ab"))

    def test_a_part_with_more_than_ten_collaborators_is_found(self):
        many = "".join(f"Other{i}& other_{i}, " for i in range(10))
        self.expect(self.check(phase=PHASE.replace("Outbox& outbox", many + "Outbox& outbox")),
                    ("scheduler/phase.h", 1, "11 collaborators"))


if __name__ == "__main__":
    unittest.main()
