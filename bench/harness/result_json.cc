#include "bench/harness/result_json.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>

namespace pando::bench {
namespace {

// Keeps the order of keys: for people.
using Json = nlohmann::ordered_json;

constexpr const char* kBytesAxis = "bytes";
constexpr const char* kCountAxis = "count";
constexpr const char* kNoAxis = "none";

const char* NameOf(PlotAxis axis) {
  return axis == PlotAxis::kBytes ? kBytesAxis : axis == PlotAxis::kCount ? kCountAxis : kNoAxis;
}

Json Of(const Parameters& parameters) {
  Json json = Json::object();
  for (const auto& [key, value] : parameters) json[key] = value;
  return json;
}

Json Of(const Machine& machine) {
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"kernel", machine.kernel},
          {"load", machine.load}};
}

Json Of(const Measurement& measurement) {
  const Statistics s = StatisticsOf(measurement.samples);
  return {{"metric", measurement.metric},
          {"unit", measurement.unit},
          {"count", s.count},
          {"min", s.min},
          {"p50", s.p50},
          {"p99", s.p99},
          {"max", s.max},
          {"samples", measurement.samples}};
}

Json Of(const Point& point) {
  Json json{{"name", point.name},
            {"parameters", Of(point.parameters)},
            {"oversubscribed", point.is_oversubscribed},
            {"measurements", Json::array()}};
  for (const Measurement& m : point.measurements) json["measurements"].push_back(Of(m));
  return json;
}

Json Of(const Table& table) {
  return {
      {"title", table.title}, {"note", table.note}, {"header", table.header}, {"rows", table.rows}};
}

Json Of(const Plot& plot) {
  Json json{{"name", plot.name},
            {"title", plot.title},
            {"y_label", plot.y_label},
            {"x_axis", NameOf(plot.x_axis)},
            {"series", Json::array()}};
  for (const Series& series : plot.series)
    json["series"].push_back({{"name", series.name}, {"points", series.points}});
  return json;
}

template <class T>
Json ListOf(const std::vector<T>& values) {
  Json json = Json::array();
  for (const T& value : values) json.push_back(Of(value));
  return json;
}

// ---- and back: the library throws where something is missing or of another type ----------------

Parameters ParametersIn(const Json& json) {
  Parameters parameters;
  for (const auto& [key, value] : json.items())
    parameters.emplace_back(key, value.get<std::string>());
  return parameters;
}

Machine MachineIn(const Json& json) {
  return {.cpu = json.at("cpu").get<std::string>(),
          .cores = json.at("cores").get<uint32_t>(),
          .memory_bytes = json.at("memory_bytes").get<uint64_t>(),
          .kernel = json.at("kernel").get<std::string>(),
          .load = json.at("load").get<double>()};
}

Point PointIn(const Json& json) {
  Point point{.name = json.at("name").get<std::string>(),
              .parameters = ParametersIn(json.at("parameters")),
              .is_oversubscribed = json.at("oversubscribed").get<bool>(),
              .measurements = {}};
  for (const Json& m : json.at("measurements")) {
    point.measurements.push_back({.metric = m.at("metric").get<std::string>(),
                                  .unit = m.at("unit").get<std::string>(),
                                  .samples = m.at("samples").get<std::vector<double>>()});
  }
  return point;
}

Table TableIn(const Json& json) {
  return {.title = json.at("title").get<std::string>(),
          .note = json.at("note").get<std::string>(),
          .header = json.at("header").get<std::vector<std::string>>(),
          .rows = json.at("rows").get<std::vector<std::vector<std::string>>>()};
}

PlotAxis AxisIn(const Json& json) {
  // Results of earlier releases have sizes alone.
  const std::string name = json.value("x_axis", kBytesAxis);
  return name == kCountAxis ? PlotAxis::kCount
         : name == kNoAxis  ? PlotAxis::kNone
                            : PlotAxis::kBytes;
}

Plot PlotIn(const Json& json) {
  Plot plot{.name = json.at("name").get<std::string>(),
            .title = json.at("title").get<std::string>(),
            .y_label = json.at("y_label").get<std::string>(),
            .series = {},
            .x_axis = AxisIn(json)};
  for (const Json& series : json.at("series")) {
    plot.series.push_back({series.at("name").get<std::string>(),
                           series.at("points").get<std::vector<std::pair<double, double>>>()});
  }
  return plot;
}

ResultSet SetIn(const Json& json) {
  ResultSet set{.benchmark = json.at("benchmark").get<std::string>(),
                .title = json.at("title").get<std::string>(),
                .date = json.at("date").get<std::string>(),
                .commit = json.at("commit").get<std::string>(),
                .machine = MachineIn(json.at("machine")),
                .options = ParametersIn(json.at("options")),
                .points = {},
                .tables = {},
                .plots = {}};
  for (const Json& point : json.at("points")) set.points.push_back(PointIn(point));
  for (const Json& table : json.at("tables")) set.tables.push_back(TableIn(table));
  for (const Json& plot : json.at("plots")) set.plots.push_back(PlotIn(plot));
  return set;
}

}  // namespace

std::string ToJson(const ResultSet& set) {
  const Json json{
      {"benchmark", set.benchmark},   {"title", set.title},         {"date", set.date},
      {"commit", set.commit},         {"machine", Of(set.machine)}, {"options", Of(set.options)},
      {"tables", ListOf(set.tables)}, {"plots", ListOf(set.plots)}, {"points", ListOf(set.points)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<ResultSet> FromJson(const std::string& text, const std::string& place) {
  try {
    return SetIn(Json::parse(text));
  } catch (const std::exception& error) {
    return Corrupt(
        fmt::format("{} is no result of pando bench: {}; remove it, or run its benchmark again",
                    place, error.what()));
  }
}

}  // namespace pando::bench
