"""Includes go downhill."""
import unittest

from fixture import LintTest
import layers


class LayersTest(LintTest):
    def test_includes_of_lower_layers_and_of_the_own_folder_are_accepted(self):
        project = self.project({"common/a.h": "", "server/b.h": "", "net/zmq/c.h": "#include <zmq.h>\n",
                                "net/d.h": '#include "net/zmq/c.h"\n',
                                "server/b.cc": '#include "server/b.h"\n\n#include "common/a.h"\n'
                                               '#include "net/d.h"\n'})
        self.expect(layers.check_layers(project))

    def test_an_include_uphill_is_found_at_its_line(self):
        project = self.project({"common/a.h": '#pragma once\n#include "server/b.h"\n', "server/b.h": "",
                                "net/zmq/c.h": '#include "net/d.h"\n', "net/d.h": ""})
        self.expect(layers.check_layers(project), ("common/a.h", 2, "server/b.h is in a higher layer"),
                    ("net/zmq/c.h", 1, "net/d.h is in a higher layer"))

    def test_the_product_does_not_include_tests(self):
        project = self.project({"cli/a.cc": '#include "tests/b.h"\n', "tests/b.h": ""})
        self.expect(layers.check_layers(project), ("cli/a.cc", 1, "tests/b.h"))

    def test_cpu_and_cuda_kernels_stay_apart(self):
        project = self.project({"kernels/ops.h": "", "kernels/cpu/a.h": "",
                                "kernels/cuda/b.cu": '#include "kernels/ops.h"\n#include "kernels/cpu/a.h"\n'})
        self.expect(layers.check_layers(project), ("kernels/cuda/b.cu", 2, "do not include each other"))

    def test_a_folder_without_a_layer_is_found(self):
        self.expect(layers.check_layers(self.project({"misc/a.h": ""})), ("misc/a.h", 1, "in no layer"))


if __name__ == "__main__":
    unittest.main()
