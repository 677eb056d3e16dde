"""The tables and plots of push-pull and kernels."""

import unittest

from scripts_path import options
import kernels
import push_pull
from kernels import Work
from push_pull import ADD, MIB, THROUGHPUT, pando_point, point_of, raw_zmq
from results import BenchError, ResultSet


def measured(args, speeds) -> ResultSet:
    """Points with the given GB/s."""
    results = ResultSet("push-pull", "t", {})
    for point, gb_per_s in speeds:
        point.add(THROUGHPUT, "GB/s", gb_per_s)
        results.points.append(point)
    push_pull.add_summaries(args, results)
    return results


class PushPullTest(unittest.TestCase):
    def test_shares_are_of_the_best_of_1x1_and_2x2_and_of_raw_zeromq_at_the_same_size_and_at_1_mib(self):
        args = options(push_pull, bytes=[4096], transport=["tcp"])
        results = measured(
            args,
            [
                (point_of(raw_zmq("tcp"), 4096), 2.0),
                (point_of(raw_zmq("tcp"), MIB), 10.0),
                (pando_point(4096, "tcp", 1, 1, "sum"), 1.0),
                (pando_point(4096, "tcp", 2, 2, "sum"), 1.5),
                (pando_point(4096, "tcp", 2, 1, "sum"), 9.0),  # a shape without an aim
                (pando_point(4096, "tcp", 1, 1, "sgd-momentum"), 0.5),
            ],
        )
        self.assertEqual(
            results.tables[0].rows,
            [["4 KiB", "-", "-", "-", "2.00", "1.50", "2x2", "0.75", "0.15", "0.16 of 1 MiB", "0.500", "0.05"]],
        )
        for table in results.tables:
            self.assertTrue(all(len(row) == len(table.header) for row in table.rows))
        # Raw ZeroMQ and the four shapes that were measured.
        self.assertEqual([len(plot.series) for plot in results.plots], [5])

    def test_the_plans_costs_are_those_of_a_line_through_messages_of_one_shard(self):
        args = options(push_pull, bytes=[4096, 65536, MIB], transport=["tcp"])
        message_us, item_us, byte_ns, sum_ns = 10.0, 3.0, 0.5, 0.1
        points = []
        for size, items in ((4096, 32), (65536, 1), (MIB, 1)):
            point = pando_point(size, "tcp", 1, 1, "sum")
            message_bytes = size * items
            shared_us = item_us * items if items > 1 else 0.0
            end_us = message_us + shared_us + (byte_ns + sum_ns / 4) * message_bytes / 1000
            point.add("messages", "1/s", 1000.0)
            point.add("processor time", "s/GB", 2 * end_us / 1e6 / (message_bytes / 1e9))
            points.append((point, message_bytes * 1000 / 1e9))
        results = measured(args, points + [(point_of(ADD, MIB), 1 / sum_ns)])
        self.assertEqual(results.tables[-1].rows, [["10.0", "3.0", "0.50", "0.10"]])

    def test_shared_memorys_shares_are_of_an_addition_with_an_aim_from_1_mib_on(self):
        args = options(push_pull, bytes=[4096, MIB], transport=["shm"])
        results = measured(args, [(point_of(ADD, MIB), 8.0), (pando_point(MIB, "shm", 1, 1, "sum"), 6.0)])
        self.assertEqual(
            results.tables[0].rows,
            [
                ["4 KiB", "-", "-", "-", "-", "-", "-", "-", "-"],
                ["1 MiB", "-", "8.00", "6.00", "1x1", "0.75", "0.50", "-", "-"],
            ],
        )
        self.assertEqual(len(results.plots[0].series), 2)

    def test_every_way_is_measured_once_for_each_size_and_the_reference_always(self):
        class Asked:
            words = []

            def ask_bench(self, words):
                self.words.append(words)
                return '{"gb_per_s": 1.0}'

        args = options(push_pull, bytes=[4096], servers=[1, 2], workers=[2])
        variants = push_pull.VariantMaker(args, Asked(), 3, "/folder").all()
        # memcpy, a += b; raw ZeroMQ over both and raw TCP, at 2 sizes; 3 transports x 2 shapes x 2 optimizers.
        self.assertEqual(len(variants), 2 + 2 * 3 + 12)
        self.assertEqual(len({variant.point.name for variant in variants}), len(variants))
        self.assertEqual(
            [variant.point.name for variant in variants if variant.point.is_oversubscribed],
            [
                f"Pando {transport} 2x2 {optimizer}, 4 KiB"
                for transport in ("tcp", "ipc", "shm")
                for optimizer in ("sum", "sgd-momentum")
            ],
        )
        variants[-1].measure(variants[-1].point)
        self.assertEqual(variants[-1].point.of(THROUGHPUT), [1.0])
        self.assertIn("--momentum", Asked.words[0])
        self.assertIn("pando-shm", Asked.words[0])

    def test_shards_are_multiples_of_64_bytes_within_bounds(self):
        self.assertEqual(push_pull.shard_bytes("4KiB"), 4096)
        for text in ("100", "64", "1GiB", "4KB"):
            self.assertRaisesRegex(BenchError, "--bytes", push_pull.shard_bytes, text)


class KernelsTest(unittest.TestCase):
    def test_shares_are_of_the_ceiling_that_bounds_the_layer(self):
        results = ResultSet("kernels", "t", {})
        # 100 GFLOP/s and 10 GB/s: 10 operations a byte.
        for name, rate in ((kernels.PEAK, 100.0), (kernels.COPY, 10.0)):
            results.points.append(kernels.Point(name))
            results.points[-1].add(kernels.RATE, "", rate)
        layers = [Work("conv1", "Conv2d 3x3", 5e7, 1e8, 1e6, 2e6), Work("conv2 relu2", "Conv2d 3x3", 1e6, 1e6, 2e6, 0)]
        for work in layers:
            point = kernels.layer_point("m", work)
            point.add(kernels.FORWARD, "ms", 1.0)
            point.add(kernels.BACKWARD, "ms", 2.0)
            results.points.append(point)
        results.points[-1].add(kernels.EIGEN, "ms", 4.0)
        kernels.add_summaries({"m": layers}, results)
        kinds, model = results.tables
        self.assertEqual(
            model.rows[0],
            ["conv1", "Conv2d 3x3", "1.000", "50.0", "1.00", "0.50 FMA", "2.000", "50.0", "1.00", "0.50 FMA", "-"],
        )
        self.assertEqual((model.rows[1][5], model.rows[1][10]), ("0.20 memory", "4.000"))
        # 51 MFLOP and 3 MB in 2 ms.
        self.assertEqual([(row[3], row[5], row[10]) for row in kinds.rows], [("25.5", "0.26 FMA", "4.000")])
        names = [name for name, _ in results.plots[0].series]
        self.assertEqual(len(names), 2)
        self.assertEqual(names[0], "Conv2d 3x3, forward (FMA)")
        self.assertAlmostEqual(results.plots[0].series[0][1][0][1], 0.255)
        for table in results.tables:
            self.assertTrue(all(len(row) == len(table.header) for row in table.rows))


if __name__ == "__main__":
    unittest.main()
