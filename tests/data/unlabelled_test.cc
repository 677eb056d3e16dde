// Samples without labels become the inputs that the labelled ones become: the same bits.
#include "data/unlabelled.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "data/kinds.h"
#include "data/picture_file.h"
#include "tests/contains.h"
#include "tests/data/check_message.h"
#include "tests/data/idx_files.h"
#include "tests/data/read_all.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<DataSet> Opened(const Job& job) {
  OpenedDataSet data = OpenDataSet(job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  return *std::move(data);
}

// The plan of a network that was trained on these data.
JobPlan PlanFor(const Job& job, const DataSet& data) {
  return JobPlan(job, data.facts(), TensorLayout({{.name = "x", .shape = {1}}}));
}

Batch ReadWhole(const Result<UnlabelledSamples>& samples) {
  REQUIRE_MESSAGE(samples.ok(), samples.status().message());
  Batch batch;
  const Status read = samples->read(0, samples->names.size(), &batch);
  REQUIRE_MESSAGE(read.ok(), read.message());
  CHECK(batch.labels == std::vector<int32_t>(samples->names.size()));
  return batch;
}

// A folder of train.csv and test.csv; `unlabelled` has the test rows without their label, and with
// other columns in another order.
struct IslandTable {
  TempFolder folder;
  Job job;
  explicit IslandTable(const std::string& missing_mass = "7") {
    Write("train.csv", "mass,island,kind,same\n1,Dream,a,3\n2,Biscoe,b,3\n6,Dream,b,3\n" +
                           missing_mass + ",Torgersen,a,3\n");
    Write("test.csv", "mass,island,kind,same\n4,Biscoe,a,3\n" + missing_mass +
                          ",Nowhere,b,3\n-3,Torgersen,a,3\n");
    Write("unlabelled.csv", "same,id,island,mass\n3,x,Biscoe,4\n3,y,Nowhere," + missing_mass +
                                "\n3,z,Torgersen,-3\n");
    job.dataset = "csv";
    job.data_path = folder.path();
    job.label = "kind";
  }
  void Write(const std::string& name, const std::string& text) const {
    folder.Write(name, Bytes(text.begin(), text.end()));
  }
};

TEST_CASE("rows without labels have the bits of the labelled ones") {
  for (const MissingValues missing :
       {MissingValues::kError, MissingValues::kMean, MissingValues::kCategory}) {
    IslandTable table(missing == MissingValues::kError ? "7" : "NA");
    table.job.missing = missing;
    const auto data = Opened(table.job);
    const auto samples = OpenRows(table.folder.File("unlabelled.csv"), PlanFor(table.job, *data));
    const Batch batch = ReadWhole(samples);
    CHECK(samples->names == std::vector<std::string>{"1", "2", "3"});
    CHECK(batch.values == ReadAll(*data, Split::kTest).values);
    CHECK(batch.shape == data->shape());
  }
}

TEST_CASE("rows without labels are read part by part") {
  const IslandTable table;
  const auto data = Opened(table.job);
  const auto samples = OpenRows(table.folder.File("test.csv"), PlanFor(table.job, *data));
  const Batch whole = ReadWhole(samples);
  Batch batch;
  REQUIRE(samples->read(1, 2, &batch).ok());
  const size_t columns = data->shape().size();
  CHECK(std::ranges::equal(batch.values, std::span(whole.values).subspan(columns, columns)));
}

TEST_CASE("rows that cannot become inputs are errors that name the place") {
  const IslandTable table;
  const JobPlan plan = PlanFor(table.job, *Opened(table.job));
  const auto check = [&](const std::string& text, const std::vector<std::string>& parts) {
    table.Write("bad.csv", text);
    CheckMessage(OpenRows(table.folder.File("bad.csv"), plan).status(), StatusCode::kCorrupt,
                 parts);
  };
  check("mass,same\n1,3\n", {"bad.csv: line 1: has no column 'island'", "only mass, same"});
  check("Mass,island,same\n1,Dream,3\n", {"has no column 'mass'", "did you mean 'Mass'"});
  check("mass,island,same\n1,Dream,3\nNA,Dream,3\n",
        {"line 3: column 'mass' holds 'NA'", "data.missing"});
  check("mass,island,same\nheavy,Dream,3\n", {"line 2: column 'mass' holds 'heavy'"});
  check("mass,island,same\n", {"has no rows"});
  CheckMessage(OpenRows(table.folder.File("none.csv"), plan).status(), StatusCode::kNotFound,
               {"none.csv: cannot be opened: No such file"});
}

TEST_CASE("each column with unknown categories has a notice") {
  const IslandTable table;
  const JobPlan plan = PlanFor(table.job, *Opened(table.job));
  table.Write("rows.csv", "mass,island,same\n1,Dream,3\n2,Nowhere,3\n3,\"x\",3\n4,Nowhere,3\n");
  const auto samples = OpenRows(table.folder.File("rows.csv"), plan);
  REQUIRE(samples.ok());
  CHECK(samples->notices ==
        std::vector<std::string>{"column island: 3 rows hold unknown categories, first 'Nowhere' "
                                 "in line 3; their inputs are 0"});
  CHECK(OpenRows(table.folder.File("train.csv"), plan)->notices.empty());
}

TEST_CASE("input_columns that no table has are an error") {
  const IslandTable table;
  JobPlan plan = PlanFor(table.job, *Opened(table.job));
  using Columns = std::vector<std::string>;
  const auto check = [&](const Columns& columns, const std::string& part) {
    plan.data.preprocessing.columns = columns;
    plan.data.preprocessing.mean.assign(columns.size(), 0);
    plan.data.preprocessing.deviation.assign(columns.size(), 1);
    CheckMessage(OpenRows(table.folder.File("train.csv"), plan).status(), StatusCode::kCorrupt,
                 {"input_columns of the weights", part});
  };
  check({"mass", "mass=", "mass=", "same"}, "is there twice): mass, mass=, mass=, same");
  check({"mass", "mass", "same"}, "is there twice): mass, mass, same");
  check({"island=Dream", "island=Dream"}, "(one is there twice): island=Dream");
  check({"mass", "mass=", "mass=x"}, "are not the inputs of a table: mass, mass=, mass=x");
}

TEST_CASE("a column whose name holds '=' is no category") {
  TempFolder folder;
  const auto write = [&](const char* name, const std::string& text) {
    folder.Write(name, Bytes(text.begin(), text.end()));
  };
  write("train.csv", "a=b,c=d,kind\n1,x=y,s\n2,z,t\n");
  write("test.csv", "a=b,c=d,kind\n3,z,s\n4,x=y,t\n");
  Job job;
  job.dataset = "csv";
  job.data_path = folder.path();
  job.label = "kind";
  const auto data = Opened(job);
  CHECK(ReadWhole(OpenRows(folder.File("test.csv"), PlanFor(job, *data))).values ==
        ReadAll(*data, Split::kTest).values);
}

// ---- pictures -----------------------------------------------------------------------------------

TEST_CASE("photographs without labels have the bits of the labelled ones") {
  TempFolder folder;
  Job job;
  job.dataset = "imagefolder";
  job.data_path = folder.path();
  job.resize = 16;
  uint8_t shade = 0;
  for (const char* name : {"train/ants/1.png", "train/bees/1.png", "val/ants/1.png",
                           "val/bees/2.png", "val/bees/sub/3.png"}) {
    fs::create_directories(fs::path(folder.File(name)).parent_path());
    Bytes pixels(40 * 30 * 3);
    for (uint8_t& value : pixels) value = shade += 37;
    REQUIRE(WritePng(folder.File(name), {pixels.data(), 40, 30, 3}).ok());
  }
  const auto data = Opened(job);
  const JobPlan plan = PlanFor(job, *data);
  folder.Write("val/bees/note.txt", {1});
  folder.Write("val/bees/4.gif", {1});
  const auto samples = OpenPictures({folder.File("val/ants/1.png"), folder.File("val/bees")}, plan);
  const Batch batch = ReadWhole(samples);
  CHECK(batch.bytes == ReadAll(*data, Split::kTest).bytes);
  CHECK(batch.normalisation->mean == data->normalisation()->mean);
  CHECK(batch.normalisation->stddev == data->normalisation()->stddev);
  CHECK(samples->names == std::vector<std::string>{folder.File("val/ants/1.png"),
                                                   folder.File("val/bees/2.png"),
                                                   folder.File("val/bees/sub/3.png")});
  REQUIRE(samples->notices.size() == 1);
  CHECK(Contains(samples->notices[0], "val/bees/4.gif' is a picture whose name"));
}

TEST_CASE("grey pictures of a data set have its bits when they come as files, also resized") {
  for (const uint32_t side : {0u, 20u}) {
    Job job;
    job.dataset = "synthetic-digits";
    job.synthetic_train_samples = 20;
    job.synthetic_test_samples = 3;
    job.resize = side;
    const auto data = Opened(job);
    TempFolder folder;
    for (uint64_t n = 0; n < 3; ++n) {
      Bytes pixels(size_t{kDigitSide} * kDigitSide);
      DrawDigit(Split::kTest, n, pixels);
      REQUIRE(WritePng(folder.File(std::to_string(n) + ".png"),
                       {pixels.data(), kDigitSide, kDigitSide, 1})
                  .ok());
    }
    const Batch batch = ReadWhole(OpenPictures({folder.path()}, PlanFor(job, *data)));
    CHECK(batch.bytes == ReadAll(*data, Split::kTest).bytes);
    CHECK(batch.shape == data->shape());
  }
}

TEST_CASE("dark digits on white are named, and inverted they have a data set's bits") {
  Job job;
  job.dataset = "synthetic-digits";
  job.synthetic_train_samples = 20;
  job.synthetic_test_samples = 3;
  const auto data = Opened(job);
  const JobPlan plan = PlanFor(job, *data);
  TempFolder folder;
  for (uint64_t n = 0; n < 3; ++n) {
    Bytes pixels(size_t{kDigitSide} * kDigitSide);
    DrawDigit(Split::kTest, n, pixels);
    for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(255 - pixel);
    REQUIRE(WritePng(folder.File(std::to_string(n) + ".png"),
                     {pixels.data(), kDigitSide, kDigitSide, 1})
                .ok());
  }
  const auto dark = OpenPictures({folder.path()}, plan);
  REQUIRE(dark.ok());
  REQUIRE(dark->notices.size() == 2);
  CHECK(Contains(dark->notices[0], "28 x 28 grey pixels, not inverted"));
  CHECK(Contains(dark->notices[0], "training pictures are light on a dark ground (0."));
  CHECK(Contains(dark->notices[1], "0.png is mostly light, unlike the training pictures"));
  CHECK(Contains(dark->notices[1], "try --invert"));
  const auto light = OpenPictures({folder.path()}, plan, Ink::kInverted);
  CHECK(ReadWhole(light).bytes == ReadAll(*data, Split::kTest).bytes);
  REQUIRE(light->notices.size() == 1);
  CHECK(Contains(light->notices[0], "inverted (--invert)"));
}

TEST_CASE("pictures are no inputs of a network with other channels than 1 and 3") {
  TempFolder folder;
  for (const uint32_t channels : {2u, 4u}) {
    const JobPlan plan(Job(), {.shape = {8, 8, channels}},
                       TensorLayout({{.name = "x", .shape = {1}}}));
    CheckMessage(OpenPictures({folder.path()}, plan).status(), StatusCode::kCorrupt,
                 {"inputs with " + std::to_string(channels) + " channels"});
  }
}

TEST_CASE("a colour becomes grey as in PIL") {
  Job job;
  job.dataset = "synthetic-digits";
  TempFolder folder;
  Bytes pixels(size_t{28} * 28 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = Bytes{200, 100, 50}[i % 3];
  REQUIRE(WritePng(folder.File("p.png"), {pixels.data(), 28, 28, 3}).ok());
  const Batch batch = ReadWhole(OpenPictures({folder.path()}, PlanFor(job, *Opened(job))));
  CHECK(batch.bytes ==
        Bytes(size_t{28} * 28, 124));  // Image.new("RGB", ..., (200, 100, 50)).convert("L")
}

TEST_CASE("pictures that cannot be read are errors that name the file") {
  Job job;
  job.dataset = "synthetic-digits";
  const JobPlan plan = PlanFor(job, *Opened(job));
  TempFolder folder;
  folder.Write("a.png", {1, 2, 3});
  const auto status = [&](const std::string& path) { return OpenPictures({path}, plan).status(); };
  CheckMessage(status(folder.File("a.png")), StatusCode::kCorrupt,
               {"a.png: not a JPEG or PNG picture"});
  CheckMessage(status(folder.File("none.png")), StatusCode::kNotFound,
               {"none.png: cannot be opened: No such file"});
  fs::create_directory(folder.File("empty"));
  CheckMessage(status(folder.File("empty")), StatusCode::kNotFound, {"empty: holds no picture"});
  Bytes pixels(12);
  REQUIRE(WritePng(folder.File("cut.png"), {pixels.data(), 2, 2, 3}).ok());
  fs::resize_file(folder.File("cut.png"), fs::file_size(folder.File("cut.png")) - 20);
  const auto cut = OpenPictures({folder.File("cut.png")}, plan);
  REQUIRE(cut.ok());
  Batch batch;
  CheckMessage(cut->read(0, 1, &batch), StatusCode::kCorrupt, {"cut.png: a PNG file that cannot"});
}

}  // namespace
}  // namespace pando
