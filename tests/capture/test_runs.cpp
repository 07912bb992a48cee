#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "capture/file_names.h"
#include "capture/recording_tap.h"
#include "capture/run_reader.h"
#include "capture/scratch_home.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

Tensor ramp(int64_t count, float from = 0) {
  Tensor tensor = Tensor::empty(DType::kF32, {count});
  for (int64_t i = 0; i < count; ++i) tensor.mutable_data<float>()[i] = from + static_cast<float>(i);
  return tensor;
}

std::vector<std::string> lines_of(const fs::path& run) {
  std::ifstream in(run / "records.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Run, KeepsValuesStatisticsAndOrder) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  writer->record(named("small"), ramp(8));
  writer->record(named("large"), ramp(1 << 20));  // through the spool and the thread
  writer->record(named("after"), ramp(3));
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest:test", home.path());
  EXPECT_EQ(run.status(), "finished");
  ASSERT_EQ(run.records().size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(run.records()[i].seq, static_cast<int64_t>(i));
  const Record& large = run.records()[1];
  EXPECT_EQ(large.key.name, "large");
  EXPECT_EQ(large.stats->max, (1 << 20) - 1);
  EXPECT_DOUBLE_EQ(large.stats->mean, ((1 << 20) - 1) / 2.0);
  EXPECT_EQ(large.stats->zero, 1);
  EXPECT_EQ(large.preview[9], 9);
  for (const Record& record : run.records()) EXPECT_TRUE(run.checksum_matches(record));
  EXPECT_EQ(to_floats(run.tensor(large)), to_floats(ramp(1 << 20)));
  EXPECT_TRUE(home.warnings.empty());
}

TEST(Run, RepeatedValuesAreKeptOnce) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  const Tensor values = ramp(1 << 19);
  writer->record(named("module"), values);
  writer->record(named("module.last_child"), values.clone());
  writer->record(named("reshaped"), values.reshape({1 << 10, 1 << 9}));  // other shape, other file
  writer->record(named("other"), ramp(1 << 19, 1));
  writer->close();
  EXPECT_EQ(writer->counts().tensor_bytes, 3u << 21);
  const lockstep::Run run = lockstep::Run::open("latest:test", home.path());
  ASSERT_EQ(run.records().size(), 4u);
  const Record &first = run.records()[0], &second = run.records()[1];
  EXPECT_EQ(first.same_as, -1);
  EXPECT_EQ(second.same_as, 0);
  EXPECT_EQ(run.records()[2].same_as, -1);
  EXPECT_NE(first.file, second.file);
  EXPECT_TRUE(fs::equivalent(run.path() / first.file, run.path() / second.file));
  EXPECT_EQ(second.stats->max, first.stats->max);
  EXPECT_EQ(to_floats(run.tensor(second)), to_floats(values));
  EXPECT_LT(folder_bytes(run.path()), 4u << 21);
}

TEST(Run, RecordsWhatWasThereAtTheCall) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  Tensor buffer = ramp(1 << 20);
  for (int i = 0; i < 20; ++i) {
    std::fill_n(buffer.mutable_data<float>(), buffer.numel(), static_cast<float>(i));
    writer->record(named("reused", i), buffer);
  }
  std::fill_n(buffer.mutable_data<float>(), buffer.numel(), -1.0f);
  writer->close();
  const lockstep::Run run = lockstep::Run::open(writer->id(), home.path());
  ASSERT_EQ(run.records().size(), 20u);
  for (int i = 0; i < 20; ++i) {
    const Record& record = run.records()[static_cast<size_t>(i)];
    EXPECT_EQ(record.stats->min, i);
    EXPECT_EQ(record.stats->max, i);
    EXPECT_EQ(to_floats(run.tensor(record)).back(), static_cast<float>(i));
    EXPECT_TRUE(run.checksum_matches(record));
  }
}

TEST(Run, StridedViewsEmptyAndScalarTensors) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  const Tensor grid = ramp(12).reshape({3, 4});
  writer->record(named("transposed"), grid.transpose(0, 1));
  writer->record(named("empty"), Tensor::empty(DType::kBF16, {0, 4}));
  writer->record(named("scalar"), Tensor::from<float>({}, {2.5f}));
  writer->record(named("flags"), Tensor::from<bool>({2}, {true, false}));
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  EXPECT_EQ(to_floats(run.tensor(run.records()[0])), to_floats(grid.transpose(0, 1)));
  EXPECT_EQ(run.records()[0].shape, (Shape{4, 3}));
  EXPECT_EQ(run.records()[1].shape, (Shape{0, 4}));
  EXPECT_EQ(run.tensor(run.records()[1]).dtype(), DType::kBF16);
  EXPECT_EQ(run.tensor(run.records()[2]).shape(), Shape{});
  EXPECT_NE(lines_of(run.path())[3].find("\"preview\": [true, false]"), std::string::npos);
}

TEST(Run, NotFiniteValuesAreStrictJson) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  writer->record(named("mixed"), Tensor::from<float>({5}, {nan, inf, -inf, 1.0f, 1e-40f}));
  writer->record(named("none"), Tensor::from<float>({1}, {nan}));
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  const Record& mixed = run.records()[0];
  EXPECT_EQ(mixed.stats->nan, 1);
  EXPECT_EQ(mixed.stats->inf, 2);
  EXPECT_EQ(mixed.stats->denormal, 1);
  EXPECT_EQ(mixed.stats->max, 1);
  const Json line = parse_json(lines_of(run.path())[0], "line");
  EXPECT_EQ(line["preview"][0], "NaN");
  EXPECT_EQ(line["preview"][2], "-Infinity");
  EXPECT_TRUE(parse_json(lines_of(run.path())[1], "line")["stats"]["min"].is_null());
}

TEST(Run, HostileNamesStayInTheFolderAndApart) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  const std::vector<std::string> names = {"../../escape",
                                          "/etc/passwd",
                                          "..",
                                          ".",
                                          "a/b",
                                          "a%2Fb",
                                          "",
                                          "äöü 漢字",
                                          "a@step0",
                                          "nul",
                                          "a\nb\"",
                                          "a~b",
                                          "A/B",
                                          std::string(4096, 'x'),
                                          std::string(4095, 'x') + "y",
                                          "\xff\xfe"};
  for (const std::string& name : names) writer->record(named(name), Tensor::from<float>({1}, {1.0f}));
  Record stepped = named("a");
  stepped.key.step = 0;
  writer->record(stepped, Tensor::from<float>({1}, {2.0f}));
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  ASSERT_EQ(run.records().size(), names.size() + 1);
  EXPECT_EQ(run.skipped_lines(), 0);
  std::set<std::string> files;
  for (const Record& record : run.records()) {
    EXPECT_TRUE(files.insert(record.file).second) << record.file;
    EXPECT_TRUE(run.checksum_matches(record));
  }
  for (size_t i = 0; i + 1 < names.size(); ++i) EXPECT_EQ(run.records()[i].key.name, names[i]);
  size_t outside = 0;
  for (const auto& entry : fs::recursive_directory_iterator(home.path()))
    if (entry.is_regular_file() && entry.path().extension() == ".npy")
      outside += entry.path().parent_path() != run.path() / "tensors";
  EXPECT_EQ(outside, 0u);
}

TEST(Run, FileStemsReadBack) {
  for (const std::string name : {"transformer.img_in", "a/b", "x@y", "%41", "ü"}) {
    TensorKey key;
    key.name = name;
    key.step = 3;
    key.hit = 2;
    key.tags = {{"block", "7=8"}, {"pass", "cond"}};
    for (const Role role : {Role::kCheckpoint, Role::kInput}) {
      Role read;
      EXPECT_EQ(key_from_file_stem(tensor_file_stem(key, role), read), key);
      EXPECT_EQ(read, role);
    }
  }
  EXPECT_EQ(tensor_file_stem({"transformer.img_in", 0, 1, {{"pass", "cond"}}}, Role::kOutput),
            "transformer.img_in@step0@cond@hit1");
}

TEST(Run, TornAndHostileLinesAreSkipped) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  writer->record(named("good"), ramp(4));
  writer->close();
  std::ofstream log(writer->path() / "records.jsonl", std::ios::app);
  log << "\n{}\nnot json\n[1,2]\n"
      << R"({"name": "out", "dtype": "f32", "shape": [1], "file": "tensors/../../secret"})"
      << "\n"
      << R"({"name": "out", "dtype": "f32", "shape": [1], "file": "/etc/passwd"})"
      << "\n"
      << R"({"name": "huge", "dtype": "f32", "shape": [4611686018427387904, 4611686018427387904]})"
      << "\n"
      << R"({"name": "negative", "dtype": "f32", "shape": [-1]})"
      << "\n"
      << std::string(2 << 20, '[') << "\n"
      << R"({"seq": 9, "name": "also good", "dtype": "complex64", "shape": [2], "stats": null})"
      << "\n"
      << R"({"seq": 10, "name": "torn", "dty)";
  log.close();
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  ASSERT_EQ(run.records().size(), 2u);
  EXPECT_EQ(run.records()[1].key.name, "also good");
  EXPECT_FALSE(run.has_values(run.records()[1]));
  EXPECT_EQ(run.skipped_lines(), 9);
}

TEST(Run, BudgetKeepsStatisticsForAll) {
  ScratchHome home;
  RunOptions options = home.options();
  options.budget_bytes = 10'000;
  auto writer = RunWriter::create(options);
  for (int i = 0; i < 10; ++i) writer->record(named("t", i), ramp(1000, static_cast<float>(i)));
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  ASSERT_EQ(run.records().size(), 10u);
  int kept = 0;
  for (const Record& record : run.records()) {
    EXPECT_TRUE(record.stats.has_value());
    EXPECT_FALSE(record.checksum.empty());
    kept += run.has_values(record);
  }
  EXPECT_EQ(kept, 2);
  EXPECT_EQ(home.warnings.size(), 1u);
  EXPECT_THROW(run.tensor(run.records()[9]), Error);
  EXPECT_EQ(run.manifest()["recorded"]["skipped_tensors"], 8);
}

TEST(Run, FullNamesAreKeptBeyondTheBudget) {
  ScratchHome home;
  RunOptions options = home.options();
  options.budget_bytes = 1;
  options.full = {"block.3.*"};
  auto writer = RunWriter::create(options);
  for (int i = 0; i < 5; ++i) writer->record(named("block." + std::to_string(i) + ".out"), ramp(100));
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  for (const Record& record : run.records()) EXPECT_EQ(run.has_values(record), record.key.name == "block.3.out");
}

TEST(Run, StoreLimitsWarnThenRefuse) {
  ScratchHome home;
  Store(home.path()).set_limits({.warn_bytes = 20'000, .refuse_bytes = 60'000});
  auto writer = RunWriter::create(home.options());
  for (int i = 0; i < 20; ++i) writer->record(named("t", i), ramp(1000, static_cast<float>(i)));
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  EXPECT_EQ(run.records().size(), 20u);
  EXPECT_EQ(home.warnings.size(), 2u);
  EXPECT_LT(Store(home.path()).size_bytes(), 60'000u + 40'000u);
  EXPECT_FALSE(run.has_values(run.records().back()));
  EXPECT_TRUE(run.has_values(run.records().front()));
}

TEST(Run, ASmallBufferBoundsMemoryAndLosesNothing) {
  ScratchHome home;
  RunOptions options = home.options();
  options.buffer_bytes = 4 << 20;
  auto writer = RunWriter::create(options);
  for (int i = 0; i < 50; ++i) writer->record(named("t", i), ramp(300'000, static_cast<float>(i)));  // 1.2 MB each
  writer->record(named("too large for the buffer"), ramp(2 << 20));
  writer->close();
  EXPECT_LE(writer->counts().peak_buffer_bytes, 4u << 20);
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  ASSERT_EQ(run.records().size(), 51u);
  for (const Record& record : run.records()) EXPECT_TRUE(run.checksum_matches(record));
}

TEST(Run, ThreadsRecordTogether) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  RecordingTap tap(writer.get(), {});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) tap.offer({"shared", -1, 0, {}}, ramp(t % 2 ? 20'000 : 10));
    });
  for (std::thread& thread : threads) thread.join();
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  ASSERT_EQ(run.records().size(), 200u);
  std::set<int> hits;
  for (size_t i = 0; i < 200; ++i) {
    EXPECT_EQ(run.records()[i].seq, static_cast<int64_t>(i));
    hits.insert(run.records()[i].key.hit);
    EXPECT_TRUE(run.checksum_matches(run.records()[i]));
  }
  EXPECT_EQ(hits.size(), 200u);
}

TEST(Run, NamesOfRuns) {
  ScratchHome home;
  auto first = RunWriter::create(home.options("a"));
  first->close();
  auto other = RunWriter::create(home.options("b"));
  other->close();
  auto second = RunWriter::create(home.options("a"));
  EXPECT_TRUE(fs::exists(home.path() / "archive" / first->id()));
  EXPECT_TRUE(fs::exists(home.path() / "latest" / "a" / "run.json"));
  EXPECT_EQ(lockstep::Run::open("latest", home.path()).id(), second->id());
  EXPECT_EQ(lockstep::Run::open("latest", home.path()).status(), "running");
  second->close();
  EXPECT_EQ(lockstep::Run::open("latest:b", home.path()).id(), other->id());
  EXPECT_EQ(lockstep::Run::open(first->id(), home.path()).id(), first->id());
  EXPECT_EQ(lockstep::Run::open((home.path() / "archive" / first->id()).string(), home.path()).id(), first->id());
  EXPECT_THROW(lockstep::Run::open("2", home.path()), Error);  // begins all of them
  EXPECT_THROW(lockstep::Run::open("latest:c", home.path()), Error);
  try {
    lockstep::Run::open("latest:aa", home.path());
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("latest:a"), std::string::npos);
    EXPECT_EQ(error.code(), Code::kNotFound);
  }
}

TEST(Run, APlainFolderIsARun) {
  ScratchHome home;
  const fs::path folder = home.path() / "dump";
  fs::create_directories(folder / "deep");
  write_npy(folder / "block.10.npy", ramp(2));
  write_npy(folder / "block.2.npy", ramp(3));
  write_npy(folder / "deep" / "latents@step4@uncond.npy", ramp(4));
  write_safetensors(folder / "weights.safetensors", {{"w.a", ramp(5)}, {"w.b", ramp(6)}});
  const lockstep::Run run = lockstep::Run::open(folder.string(), home.path());
  ASSERT_EQ(run.records().size(), 5u);
  EXPECT_EQ(run.records()[0].key.name, "block.2");
  EXPECT_EQ(run.records()[1].key.name, "block.10");
  const Record* latents = run.find({"deep/latents", 4, 0, {{"pass", "uncond"}}});
  ASSERT_NE(latents, nullptr);
  EXPECT_EQ(run.tensor(*latents).numel(), 4);
  EXPECT_EQ(run.tensor(*run.find({"weights/w.b", -1, 0, {}})).numel(), 6);
  EXPECT_THROW(lockstep::Run::open((home.path() / "nowhere").string(), home.path()), Error);
}

TEST(Run, ValuesThatChangeAfterTheCaptureAreNoticed) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  writer->record(named("x"), ramp(100));
  writer->close();
  // On the way to the disk: the checksum of the capture is not that of what is about to be written.
  RunFolder folder(writer->path());
  Record record = named("y");
  const Tensor values = ramp(100);
  record.dtype = values.dtype(), record.dtype_text = "f32", record.shape = values.shape(), record.file = "pending";
  record.checksum = lockstep::Run::open_path(writer->path()).records()[0].checksum;
  EXPECT_TRUE(finish_record(folder, record, values.contiguous_bytes()));
  record.stats.reset(), record.key.name = "z";
  const Tensor changed = ramp(100, 1);
  EXPECT_FALSE(finish_record(folder, record, changed.contiguous_bytes()));
  // And on the disk.
  const lockstep::Run run = lockstep::Run::open_path(writer->path());
  EXPECT_TRUE(run.checksum_matches(run.records()[0]));
  write_npy(run.path() / run.records()[0].file, changed);
  EXPECT_FALSE(run.checksum_matches(run.records()[0]));
}

TEST(RecordingTap, CountsHitsOncePerNameStepAndTags) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  TapOptions options;
  options.filter.no_tap = {"secret.*"};
  RecordingTap tap(writer.get(), options);
  EXPECT_FALSE(tap.wants("secret.a"));
  for (int step = 0; step < 2; ++step)
    for (const char* pass : {"cond", "uncond"})
      for (int again = 0; again < 2; ++again) tap.offer({"x", step, 99, {{"pass", pass}}}, ramp(1));
  tap.offer({"secret.a", -1, 0, {}}, ramp(1));
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  ASSERT_EQ(run.records().size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(run.records()[i].key.hit, static_cast<int>(i % 2));
}

TEST(RecordingTap, ComparesAndSubstitutesFromAReference) {
  ScratchHome home;
  auto reference_writer = RunWriter::create(home.options("reference"));
  RecordingTap reference_tap(reference_writer.get(), {});
  reference_tap.offer({"block.0", -1, 0, {}}, ramp(4, 10));
  reference_tap.offer({"block.1", -1, 0, {}}, ramp(4, 20));
  reference_tap.offer({"block.2", -1, 0, {}}, ramp(5, 30));
  reference_writer->close();
  const lockstep::Run reference = lockstep::Run::open("latest:reference", home.path());

  auto writer = RunWriter::create(home.options("candidate"));
  TapOptions options;
  options.reference = &reference;
  options.substitute = {"block.1", "block.2"};
  std::vector<std::string> compared;
  options.compared = [&](const TensorKey& key, const Tensor& candidate, const Tensor& expected) {
    compared.push_back(key.name);
    EXPECT_EQ(candidate.data<float>()[0], 0);
    EXPECT_GE(expected.data<float>()[0], 10);
  };
  RecordingTap tap(writer.get(), options);
  EXPECT_FALSE(tap.offer({"block.0", -1, 0, {}}, ramp(4)));
  const auto replaced = tap.offer({"block.1", -1, 0, {}}, ramp(4).to(DType::kBF16).to(DType::kF32));
  ASSERT_TRUE(replaced);
  EXPECT_EQ(to_floats(*replaced), to_floats(ramp(4, 20)));
  EXPECT_FALSE(tap.offer({"block.2", -1, 0, {}}, ramp(4)));  // another shape: never substituted
  EXPECT_FALSE(tap.offer({"block.9", -1, 0, {}}, ramp(4)));
  writer->close();
  EXPECT_EQ(compared, (std::vector<std::string>{"block.0", "block.1", "block.2"}));
  EXPECT_EQ(home.warnings.size(), 1u);
  const lockstep::Run run = lockstep::Run::open("latest:candidate", home.path());
  EXPECT_TRUE(run.records()[1].substituted);
  EXPECT_EQ(to_floats(run.tensor(run.records()[1])), to_floats(ramp(4)));  // its own value is what is recorded
}

TEST(RecordingTap, StepsAreChosen) {
  EXPECT_EQ(steps_from_text("0,5-9"), (std::vector<std::pair<int, int>>{{0, 0}, {5, 9}}));
  EXPECT_THROW(steps_from_text("5-"), Error);
  EXPECT_THROW(steps_from_text("9-5"), Error);
  TapFilter filter;
  filter.steps = steps_from_text("1-2");
  EXPECT_TRUE(filter.wants_step(-1));
  EXPECT_FALSE(filter.wants_step(0));
  EXPECT_TRUE(filter.wants_step(2));
}

TEST(Store, SizesAsPeopleWriteThem) {
  EXPECT_EQ(bytes_from_text("1000"), 1000u);
  EXPECT_EQ(bytes_from_text("1.5GB"), 1'500'000'000u);
  EXPECT_EQ(bytes_from_text("2 GiB"), 2ull << 30);
  EXPECT_EQ(bytes_from_text("3k"), 3000u);
  for (const char* bad : {"", "GB", "-1", "1XB", "nan", "1e30"}) EXPECT_FALSE(bytes_from_text(bad)) << bad;
}

TEST(Store, RemovesOnlyItsOwn) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  const Store store(home.path());
  EXPECT_THROW(store.remove(writer->path()), Error);  // live
  writer->close();
  EXPECT_THROW(store.remove("/tmp"), Error);
  EXPECT_THROW(store.remove(home.path() / "runs" / ".." / ".."), Error);
  EXPECT_GT(store.remove(writer->path()), 0u);
  EXPECT_TRUE(store.list().empty());
}

}  // namespace
}  // namespace lockstep
