#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "bench/harness/interleave.h"
#include "bench/harness/result.h"
#include "bench/harness/units.h"

namespace pando::bench {
namespace {

TEST_CASE("statistics of known samples, in any order") {
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) samples.push_back(i);  // 0 to 100
  const Statistics s = StatisticsOf(samples);
  CHECK(s.count == 101);
  CHECK(s.min == 0.0);
  CHECK(s.p50 == 50.0);
  CHECK(s.p99 == 99.0);
  CHECK(s.max == 100.0);
}

TEST_CASE("one sample is every quantile, none is zeros, two have their middle between them") {
  CHECK(StatisticsOf({}).count == 0);
  CHECK(StatisticsOf({}).max == 0.0);
  CHECK(StatisticsOf({7.0}).p50 == 7.0);
  CHECK(StatisticsOf({7.0}).p99 == 7.0);
  CHECK(Median({3.0, 1.0}) == 2.0);
  CHECK(Quantile({1.0, 3.0}, 0.0) == 1.0);
  CHECK(Quantile({1.0, 3.0}, 1.0) == 3.0);
  CHECK(Quantile({1.0, 3.0}, 0.99) == doctest::Approx(2.98));
}

TEST_CASE("a point gathers samples by metric") {
  Point point{.name = "p"};
  point.Add("throughput", "GB/s", 1.0);
  point.Add("latency", "us", 50.0);
  point.Add("throughput", "GB/s", 3.0);
  REQUIRE(point.measurements.size() == 2);
  CHECK(point.MedianOf("throughput") == 2.0);
  CHECK(point.Find("latency")->unit == "us");
  CHECK(point.Find("none") == nullptr);
  CHECK(point.MedianOf("none") == 0.0);
}

TEST_CASE("sizes are read in every unit, and written in the largest that divides them") {
  const std::vector<std::pair<std::string, uint64_t>> sizes{
      {"4KiB", 4096}, {"1MiB", 1 << 20}, {"2GiB", uint64_t{2} << 30},
      {"64B", 64},    {"65536", 65536},  {"1", 1}};
  for (const auto& [text, bytes] : sizes) {
    const Result<uint64_t> parsed = ParseBytes(text);
    REQUIRE(parsed.ok());
    CHECK(*parsed == bytes);
  }
  CHECK(BytesText(4096) == "4 KiB");
  CHECK(BytesText(65536) == "64 KiB");
  CHECK(BytesText(1536) == "1536 B");
  CHECK(BytesText(uint64_t{3} << 30) == "3 GiB");
}

TEST_CASE("what is no size, or too large a one, is an error that repeats it") {
  for (const char* text : {"", "KiB", "0", "0KiB", "-1", "4KB", "4 KiB", "1.5MiB", "4kib", "4KiBs",
                           "99999999999999999999"}) {
    CAPTURE(text);
    const Result<uint64_t> parsed = ParseBytes(text);
    REQUIRE(!parsed.ok());
    CHECK(parsed.status().message().find("'" + std::string(text) + "'") != std::string::npos);
  }
  CHECK(ParseBytes("64MiB", 64 << 20).ok());
  CHECK(!ParseBytes("65MiB", 64 << 20).ok());
  CHECK(!ParseBytes("18446744073709551615GiB").ok());  // would wrap
}

TEST_CASE("variants are measured in turns, and every other round goes back") {
  std::string order;
  std::vector<Variant> variants;
  for (const char* name : {"a", "b", "c"}) {
    variants.push_back({{.name = name}, [&order](Point* point) {
                          order += point->name;
                          point->Add("m", "1", static_cast<double>(order.size()));
                          return Status();
                        }});
  }
  size_t told = 0;
  const auto points =
      MeasureInTurns(std::move(variants), 3, [&](size_t done, size_t all, const Point&) {
        CHECK(done == told++);
        CHECK(all == 9);
      });
  REQUIRE(points.ok());
  CHECK(order == "abccbaabc");
  CHECK(told == 9);
  REQUIRE(points->size() == 3);
  CHECK((*points)[1].Find("m")->samples == std::vector<double>{2, 5, 8});
}

TEST_CASE("the first failure ends the measuring and says whose it is") {
  int calls = 0;
  std::vector<Variant> variants{{{.name = "good"},
                                 [&](Point*) {
                                   ++calls;
                                   return Status();
                                 }},
                                {{.name = "bad"}, [](Point*) { return Unavailable("no port"); }}};
  const auto points = MeasureInTurns(std::move(variants), 2, {});
  REQUIRE(!points.ok());
  CHECK(points.status().code() == StatusCode::kUnavailable);
  CHECK(points.status().message() == "bad: no port");
  CHECK(calls == 1);
}

}  // namespace
}  // namespace pando::bench
