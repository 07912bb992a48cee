// What must hold when things go wrong: a killed program, a full disk, a folder that cannot be written, many at once.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "base/error.h"
#include "capture/recording_tap.h"
#include "capture/run_reader.h"
#include "capture/scratch_home.h"
#include "capture/session.h"

namespace lockstep {
namespace {

Tensor filled(int64_t count, float value) {
  Tensor tensor = Tensor::empty(DType::kF32, {count});
  std::fill_n(tensor.mutable_data<float>(), count, value);
  return tensor;
}

// Sizes below and above those from which the writer thread takes over and from which it writes past the page cache; and
// values that repeat, which are kept once.
int64_t size_of_hit(int hit) {
  constexpr int64_t kSizes[] = {10, 40'000, 3, 300'000, 300'000, 9'000, 9'000, 1};
  return kSizes[hit % 8];
}
float value_of_hit(int hit) {
  return static_cast<float>(hit % 8 == 4 || hit % 8 == 6 ? hit - 1 : hit);
}

// Runs `body` in a child process and returns its pid; the child never returns.
template <typename Body>
pid_t in_child(Body&& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      std::_Exit(1);
    }
    std::_Exit(0);
  }
  return pid;
}

void record_and_report(const fs::path& home, int report) {
  RunOptions options;
  options.home = home;
  options.name = "victim";
  auto writer = RunWriter::create(options);
  RecordingTap tap(*writer, {});
  for (int hit = 0;; ++hit) {
    tap.offer({"loop", -1, 0, {}}, filled(size_of_hit(hit), value_of_hit(hit)));
    if (::write(report, &hit, sizeof hit) != sizeof hit) std::_Exit(1);
  }
}

TEST(Robustness, KillLosesAtMostTheRecordBeingWritten) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> moment(0, 60);
  int64_t most_recovered = 0;
  for (int round = 0; round < 100; ++round) {
    ScratchHome home;
    int report[2];
    ASSERT_EQ(::pipe(report), 0);
    const pid_t pid = in_child([&] { record_and_report(home.path(), report[1]); });
    ::close(report[1]);
    // Wait until some number of hits has been reported, then kill wherever it happens to be by then.
    const int wanted = moment(random);
    int last = -1, value = 0;
    while (last < wanted && ::read(report[0], &value, sizeof value) == sizeof value) last = value;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    while (::read(report[0], &value, sizeof value) == sizeof value) last = value;  // reported before it died
    ::close(report[0]);

    const lockstep::Run run = lockstep::Run::open("latest:victim", home.path());
    EXPECT_EQ(run.status(), "killed");
    EXPECT_EQ(run.skipped_lines(), 0);
    // Everything whose record() had returned is there; one more may be.
    ASSERT_GE(run.records().size(), static_cast<size_t>(last + 1)) << "round " << round;
    ASSERT_LE(run.records().size(), static_cast<size_t>(last + 2));
    for (size_t i = 0; i < run.records().size(); ++i) {
      const Record& record = run.records()[i];
      ASSERT_EQ(record.seq, static_cast<int64_t>(i));
      ASSERT_EQ(record.key.hit, static_cast<int>(i));
      ASSERT_EQ(record.stats->min, static_cast<double>(value_of_hit(static_cast<int>(i))));
      ASSERT_TRUE(run.has_values(record));
      ASSERT_TRUE(run.checksum_matches(record));
    }
    most_recovered = std::max(most_recovered, static_cast<int64_t>(run.records().size()));
    // Opening again finds a complete run and changes nothing.
    EXPECT_EQ(lockstep::Run::open("latest:victim", home.path()).records().size(), run.records().size());
  }
  EXPECT_GT(most_recovered, 10);
}

TEST(Robustness, AFullDiskStopsTheRecordingNotTheProgram) {
  ScratchHome home;
  const pid_t pid = in_child([&] {
    // Files may not grow beyond this: what a full disk does, for one process only.
    const rlimit small{20'000, 20'000};
    ::setrlimit(RLIMIT_FSIZE, &small);
    int warnings = 0;
    RunOptions options = home.options();
    options.warn = [&](const std::string&) { ++warnings; };
    auto writer = RunWriter::create(options);
    double sum = 0;
    for (int i = 0; i < 200; ++i) {
      const Tensor tensor = filled(100'000, 1.0f);
      writer->record(named("t", i), tensor);
      sum += static_cast<double>(tensor.data<float>()[99]);
    }
    writer->close();
    std::_Exit(sum == 200 && warnings == 1 ? 0 : 1);
  });
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  EXPECT_EQ(run.skipped_lines(), 0);  // the line that did not fit was taken back
  EXPECT_GT(run.records().size(), 5u);
  EXPECT_LT(run.records().size(), 200u);
  for (const Record& record : run.records()) EXPECT_FALSE(run.has_values(record));
}

TEST(Robustness, WithoutTheSignalIgnoredTheHostSurvivesToo) {
  ScratchHome home;
  const pid_t pid = in_child([&] {
    RunOptions options = home.options();
    options.warn = [](const std::string&) {};
    const rlimit small{300'000, 300'000};
    ::setrlimit(RLIMIT_FSIZE, &small);
    auto writer = RunWriter::create(options);
    for (int i = 0; i < 20; ++i) writer->record(named("t", i), filled(i % 2 ? 100'000 : 60'000, 1.0f));
    writer->close();
    std::_Exit(0);
  });
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(lockstep::Run::open("latest", home.path()).records().size(), 20u);
}

TEST(Robustness, AFolderThatCannotBeWrittenIsAnErrorAtOpening) {
  ScratchHome home;
  const fs::path file = home.path() / "a_file";
  write_atomically(file, "x");
  RunOptions options = home.options();
  options.home = file / "inside";
  try {
    RunWriter::create(options);
    FAIL() << "a run was made inside a file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kIo);
    EXPECT_NE(std::string(error.what()).find("--home"), std::string::npos);
  }
}

TEST(Robustness, AFolderThatVanishesCostsOneWarning) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  writer->record(named("before"), filled(10, 1));
  fs::remove_all(writer->path());
  for (int i = 0; i < 50; ++i) writer->record(named("after", i), filled(100'000, 1));
  writer->close();
  EXPECT_EQ(home.warnings.size(), 1u);
}

TEST(Robustness, TheSpoolOfADeletedRunIsRemoved) {
  if (!fs::exists("/dev/shm")) GTEST_SKIP() << "no /dev/shm here";
  fs::path spool;
  {
    ScratchHome home;
    const pid_t pid = in_child([&] {
      auto writer = RunWriter::create(home.options());
      ::raise(SIGKILL);
    });
    ::waitpid(pid, nullptr, 0);
    const std::vector<RunSummary> runs = Store(home.path()).list();
    ASSERT_EQ(runs.size(), 1u);
    spool = "/dev/shm/lockstep-" + std::to_string(::getuid()) + "-" + runs[0].id;
    EXPECT_TRUE(fs::exists(spool));
  }  // the store is deleted before anyone opened the run
  ScratchHome other;
  RunWriter::create(other.options())->close();
  EXPECT_FALSE(fs::exists(spool));
}

TEST(Robustness, TwoProgramsRecordAtOnce) {
  ScratchHome home;
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child)
    children.push_back(in_child([&] {
      RunOptions options = home.options("same");
      auto writer = RunWriter::create(options);
      RecordingTap tap(*writer, {});
      for (int i = 0; i < 200; ++i)
        tap.offer({"t", -1, 0, {}}, filled(i % 10 ? 10 : 20'000, static_cast<float>(child)));
      writer->close();
    }));
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const std::vector<RunSummary> runs = Store(home.path()).list();
  ASSERT_EQ(runs.size(), 4u);
  for (const RunSummary& summary : runs) {
    EXPECT_EQ(summary.status, "finished");
    const lockstep::Run run = lockstep::Run::open_path(summary.path);
    EXPECT_EQ(run.records().size(), 200u);
    for (const Record& record : run.records()) EXPECT_EQ(record.stats->min, run.records()[0].stats->min);
  }
}

TEST(Robustness, OneRunHasOneWriter) {
  ScratchHome home;
  auto first = RunWriter::create(home.options());
  EXPECT_EQ(RunWriter::attach(first->path(), home.options()), nullptr);  // the same process
  const pid_t pid = in_child([&] { std::_Exit(RunWriter::attach(first->path(), home.options()) == nullptr ? 0 : 1); });
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(run_is_live(first->path()));  // and asking has not dropped the lock
  first->close();
  EXPECT_FALSE(run_is_live(first->path()));
}

TEST(Robustness, AForkedChildLeavesTheRunAlone) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  writer->record(named("large"), filled(100'000, 1));
  const pid_t pid = in_child([&] {
    for (int i = 0; i < 10; ++i) writer->record(named("child", i), filled(100'000, 2));
    writer->flush();
    writer->close();
    writer.reset();
  });
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  writer->record(named("after"), filled(100'000, 3));
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  ASSERT_EQ(run.records().size(), 2u);
  EXPECT_EQ(run.records()[1].key.name, "after");
  EXPECT_TRUE(run.checksum_matches(run.records()[0]));
}

TEST(Robustness, AHundredThousandHitsInALoop) {
  ScratchHome home;
  RunOptions options = home.options();
  options.stats_only = true;
  auto writer = RunWriter::create(options);
  RecordingTap tap(*writer, {});
  const Tensor tensor = filled(16, 1);
  for (int i = 0; i < 100'000; ++i) tap.offer({"loop", -1, 0, {}}, tensor);
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  ASSERT_EQ(run.records().size(), 100'000u);
  for (int i = 0; i < 100'000; ++i) ASSERT_EQ(run.records()[static_cast<size_t>(i)].key.hit, i);
  EXPECT_TRUE(home.warnings.empty());
}

TEST(Robustness, TheEnvironmentSaysWhatToDo) {
  const auto with = [](std::vector<std::pair<const char*, const char*>> variables, auto&& check) {
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
    check();
    for (const auto& [name, value] : variables) ::unsetenv(name);
  };
  EXPECT_FALSE(settings_from_environment("p"));
  with({{"LOCKSTEP_RECORD", "0"}, {"LOCKSTEP_RUN", "/x"}}, [] { EXPECT_FALSE(settings_from_environment("p")); });
  with({{"LOCKSTEP_RECORD", "1"}}, [] { EXPECT_EQ(settings_from_environment("p")->run.name, "p"); });
  with({{"LOCKSTEP_RECORD", "mine"}, {"LOCKSTEP_BUDGET", "2MB"}, {"LOCKSTEP_TAP", "a.*,b"}}, [] {
    const auto settings = settings_from_environment("p");
    EXPECT_EQ(settings->run.name, "mine");
    EXPECT_EQ(settings->run.budget_bytes, 2'000'000u);
    EXPECT_EQ(settings->filter.tap, (std::vector<std::string>{"a.*", "b"}));
  });
  with({{"LOCKSTEP_REFERENCE", "latest"}, {"LOCKSTEP_SUBSTITUTE", "*"}},
       [] { EXPECT_FALSE(settings_from_environment("p")->record); });
  with({{"LOCKSTEP_RECORD", "1"}, {"LOCKSTEP_BUDGET", "much"}},
       [] { EXPECT_THROW(settings_from_environment("p"), Error); });
}

}  // namespace
}  // namespace lockstep
