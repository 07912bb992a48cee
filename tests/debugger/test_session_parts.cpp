#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/new_folder.h"
#include "debugger/agent_socket.h"
#include "debugger/output_log.h"
#include "debugger/program.h"
#include "debugger/session_end.h"
#include "debugger/trace.h"

namespace lockstep {
namespace {

class DebuggerParts : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

  ChildEnd run(const std::string& command) const {
    ChildProcess child({.argv = {"sh", "-c", command},
                        .environment = {{"PATH", "/usr/bin:/bin"}, {"WORD", "told"}},
                        .cwd = folder_,
                        .output = folder_ / "output.log",
                        .input = {},
                        .descriptors = {}});
    pollfd ended{child.end_descriptor(), POLLIN, 0};
    EXPECT_GT(::poll(&ended, 1, 20000), 0);
    ChildEnd end;
    EXPECT_TRUE(child.try_wait(end));
    return end;
  }

  const TemporaryFolder made_{"lockstep-debugger-", "test"};
  const fs::path& folder_ = made_.path();
};

TEST_F(DebuggerParts, ChildRunsWithItsOwnFolderEnvironmentAndOutput) {
  const ChildEnd end = run("pwd; echo $WORD >&2; cat; exit 3");
  EXPECT_EQ(end.exit_code(), 3);
  EXPECT_FALSE(end.by_signal());
  EXPECT_EQ(read_text(folder_ / "output.log", 1000), folder_.string() + "\ntold\n");
}

TEST_F(DebuggerParts, SignalsAreNamed) {
  const ChildEnd end = run("kill -SEGV $$");
  EXPECT_EQ(end.signal_name(), "SIGSEGV");
  EXPECT_EQ(end.exit_code(), 128 + SIGSEGV);
}

TEST_F(DebuggerParts, ChildInheritsNoDescriptorOfOurs) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // without close-on-exec, as the HTTP library's sockets are
  run("ls /dev/fd | wc -l > count");
  ::close(ends[0]);
  ::close(ends[1]);
  std::ifstream count(folder_ / "count");
  int descriptors = 0;
  count >> descriptors;
  EXPECT_LE(descriptors, 4);  // three, and the folder that ls reads
}

TEST_F(DebuggerParts, WhatCannotRunIsNamed) {
  EXPECT_THROW(find_program("no-such-program", {{"PATH", "/usr/bin"}}, "/"), Error);
  EXPECT_EQ(find_program("sh", {{"PATH", "/nowhere:/bin"}}, "/"), "/bin/sh");
}

TEST_F(DebuggerParts, EndsAreToldApart) {
  const auto how = [&](int status, const Json& exited, bool terminated = false) {
    return describe_end({.end = {status, 1 << 20},
                         .exited = exited,
                         .folder = folder_,
                         .last_stop = nullptr,
                         .terminated = terminated});
  };
  EXPECT_EQ(how(0, {{"how", "finished"}})["how"], "finished");
  EXPECT_EQ(how(3 << 8, {{"how", "sys_exit"}})["how"], "sys_exit");
  EXPECT_EQ(how(7 << 8, nullptr)["how"], "exit");
  EXPECT_EQ(how(SIGKILL, nullptr)["how"], "killed");
  EXPECT_EQ(how(SIGKILL, nullptr, true)["how"], "terminated");
  EXPECT_EQ(how(SIGABRT, nullptr)["how"], "signal");
  const Json memory{{"how", "exception"}, {"exception", {{"type", "MemoryError"}, {"message", ""}}}};
  EXPECT_EQ(how(1 << 8, memory)["how"], "out_of_memory");
  const Json torch{
      {"how", "exception"},
      {"exception", {{"type", "RuntimeError"}, {"message", "DefaultCPUAllocator: can't allocate memory"}}}};
  EXPECT_EQ(how(1 << 8, torch)["how"], "out_of_memory");
}

TEST_F(DebuggerParts, TheKernelsMemoryKillIsToldFromOthers) {
  const auto how = [&](int64_t before, int64_t after) {
    return describe_end({.end = {SIGKILL, 0},
                         .exited = nullptr,
                         .folder = folder_,
                         .last_stop = nullptr,
                         .terminated = false,
                         .memory_kills_before = before,
                         .memory_kills_after = after})["how"];
  };
  EXPECT_EQ(how(1, 2), "out_of_memory");
  EXPECT_EQ(how(2, 2), "killed");
  EXPECT_EQ(how(-1, -1), "killed");
}

TEST_F(DebuggerParts, ACrashIsPlacedByTheFaultHandlersStack) {
  write("crash.txt",
        "Fatal Python error: Segmentation fault\n\nThread 0x01 (most recent call first):\n  File \"/other.py\", line 1 "
        "in f\n\n"
        "Current thread 0x02 (most recent call first):\n  File \"/a b/model.py\", line 12 in forward\n"
        "  File \"/main.py\", line 3 in <module>\n");
  const Json end = describe_end({.end = {SIGSEGV, 0}, .exited = nullptr, .folder = folder_, .last_stop = nullptr});
  EXPECT_EQ(end["location"]["file"], "/a b/model.py");
  EXPECT_EQ(end["location"]["line"], 12);
  EXPECT_EQ(end["stack"].size(), 2u);
  EXPECT_NE(end["description"].get<std::string>().find("SIGSEGV at /a b/model.py:12"), std::string::npos);
}

TEST_F(DebuggerParts, LastKnownPlaceIsUsedWhereNothingElseIs) {
  write("last.json", R"({"time": 1, "location": {"file": "/x.py", "line": 5}, "stack": []})");
  const Json end = describe_end({.end = {SIGKILL, 0}, .exited = nullptr, .folder = folder_, .last_stop = nullptr});
  EXPECT_EQ(end["location"]["line"], 5);
  write("last.json", "{torn");
  const Json torn = describe_end({.end = {SIGKILL, 0}, .exited = nullptr, .folder = folder_, .last_stop = nullptr});
  EXPECT_FALSE(torn.contains("location"));
}

TEST_F(DebuggerParts, TraceIsReadAroundTornLines) {
  {
    TraceWriter trace(folder_ / "trace.jsonl");
    for (int i = 0; i < 5; ++i) trace.add("output", {{"text", "line " + std::to_string(i)}});
    trace.add("end", {{"end", {{"how", "finished"}}}});
  }
  std::ofstream(folder_ / "trace.jsonl", std::ios::app) << "{\"kind\": \"sto";
  const TracePart last = read_trace(folder_ / "trace.jsonl", 0, -2);
  EXPECT_EQ(last.total, 7);
  EXPECT_EQ(last.skipped, 1);
  ASSERT_EQ(last.lines.size(), 2u);
  EXPECT_EQ(last.lines[1]["kind"], "end");
  EXPECT_EQ(read_trace(folder_ / "trace.jsonl", 2, 1).lines[0]["text"], "line 2");
  EXPECT_EQ(read_trace(folder_ / "trace.jsonl", 0, 100, "end").lines.size(), 1u);
  EXPECT_EQ(trace_document(folder_ / "trace.jsonl")["output"].size(), 5u);
  EXPECT_THROW(read_trace(folder_ / "absent.jsonl", 0, 1), Error);
}

TEST_F(DebuggerParts, OutputIsFollowedLineByLine) {
  write("output.log", "one\ntw");
  OutputTail tail(folder_ / "output.log");
  std::vector<std::string> lines;
  const auto keep = [&](const std::string& line) { lines.push_back(line); };
  tail.read(false, keep);
  EXPECT_EQ(lines, std::vector<std::string>{"one"});
  std::ofstream(folder_ / "output.log", std::ios::app) << "o\nthree";
  tail.read(false, keep);
  EXPECT_EQ(lines.back(), "two");
  tail.read(true, keep);
  EXPECT_EQ(lines.back(), "three");
  const OutputPart part = read_output(folder_ / "output.log", 0, 1);
  EXPECT_EQ(part.lines, std::vector<std::string>{"two"});
  EXPECT_EQ(part.first, 2);
  EXPECT_EQ(part.total, 2);
  EXPECT_EQ(part.unfinished, "three");
  EXPECT_EQ(read_output(folder_ / "output.log", 1, 1).lines, std::vector<std::string>{"one"});
  EXPECT_EQ(last_output(folder_ / "output.log", 1), "\n  two\n  three");
  std::vector<std::string> later;
  OutputTail(folder_ / "output.log", 1).read(true, [&](const std::string& line) { later.push_back(line); });
  EXPECT_EQ(later, (std::vector<std::string>{"two", "three"}));
}

TEST(BoundedLine, KeepsTheBeginningAndTheEnd) {
  BoundedLine line(4, 3);
  std::vector<std::string> lines;
  const auto keep = [&] { lines.push_back(line.text()); };
  each_finished_line(line, "abcdefg\nabc", keep);
  for (int i = 0; i < 100; ++i) each_finished_line(line, "x", keep);
  each_finished_line(line, "yz\n\n0123456789AB", keep);
  EXPECT_EQ(lines, (std::vector<std::string>{"abcdefg", "abcx ...[98 bytes]... xyz", ""}));
  EXPECT_FALSE(line.whole());
  EXPECT_EQ(line.text(), "0123 ...[5 bytes]... 9AB");
  line.clear();
  EXPECT_TRUE(line.empty() && line.whole());
}

TEST_F(DebuggerParts, AProcessOfAnotherIsWatchedAndNeverTakenForALaterOne) {
  const pid_t own = ::getpid();
  EXPECT_GT(process_start_ticks(own), 0u);
  EXPECT_EQ(process_start_ticks(-1), 0u);
  ChildEnd end;
  ChildProcess later(own, process_start_ticks(own) + 1);  // the number is ours, the process it was meant for is not
  EXPECT_TRUE(later.try_wait(end));
  EXPECT_FALSE(end.seen);
  later.signal(SIGKILL, true);  // reaches nobody
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setsid();
    ::pause();
    ::_exit(0);
  }
  ChildProcess watched(pid, process_start_ticks(pid));
  EXPECT_FALSE(watched.try_wait(end));
  ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  pollfd ended{watched.end_descriptor(), POLLIN, 0};
  EXPECT_GT(::poll(&ended, 1, 20000), 0);
  EXPECT_TRUE(watched.try_wait(end));
}

TEST_F(DebuggerParts, ATraceTellsWhereItsSessionStands) {
  write("trace.jsonl",
        R"({"kind": "stop", "source": "agent", "location": {"file": "/x.py", "line": 1}})"
        "\n"
        R"({"kind": "breakpoint", "change": "set", "breakpoint": {"id": 1, "where": "x.py:4", "condition": "n > 1"}})"
        "\n"
        R"({"kind": "breakpoint", "change": "set", "breakpoint": {"id": 2, "where": "x.py:5"}})"
        "\n"
        R"({"kind": "breakpoint", "change": "verified", "breakpoint": {"id": 2, "where": "x.py:5"}})"
        "\n"
        R"({"kind": "breakpoint", "change": "removed", "breakpoint": {"id": 2, "where": "x.py:5"}})"
        "\n"
        R"({"kind": "breakpoint", "change": "set", "breakpoint": {"id": 3, "where": "*", "module": "*", "nan": true}})"
        "\n"
        R"({"kind": "output", "source": "service", "text": "one"})"
        "\n"
        R"({"kind": "output", "source": "agent", "text": "a logpoint"})"
        "\n"
        R"({"kind": "exit", "how": "finished", "code": 0})"
        "\n{torn");
  const TraceState state = trace_state(folder_ / "trace.jsonl");
  EXPECT_EQ(state.output_lines, 1);
  EXPECT_EQ(state.stops, 1);
  EXPECT_EQ(state.exited["how"], "finished");
  EXPECT_EQ(state.last_stop["location"]["line"], 1);
  ASSERT_EQ(state.breakpoints.size(), 2u);
  EXPECT_EQ(state.breakpoints.at(1), (Json{{"condition", "n > 1"}, {"where", "x.py:4"}}));
  EXPECT_EQ(state.breakpoints.at(3), (Json{{"module", "*"}, {"nan", true}}));
}

TEST_F(DebuggerParts, AnEndThatNobodySawIsToldByItsLastWords) {
  const ChildEnd unseen{.status = 0, .peak_bytes = 0, .seen = false};
  const Json said = describe_end(
      {.end = unseen, .exited = {{"how", "sys_exit"}, {"code", 3}}, .folder = folder_, .last_stop = nullptr});
  EXPECT_EQ(said["how"], "sys_exit");
  EXPECT_EQ(said["exit_code"], 3);
  const Json silent = describe_end({.end = unseen, .exited = nullptr, .folder = folder_, .last_stop = nullptr});
  EXPECT_EQ(silent["how"], "unseen");
  EXPECT_FALSE(silent.contains("exit_code"));
}

TEST_F(DebuggerParts, MessagesCrossTheSocketAndItLeavesNothing) {
  AgentListener listener(folder_);
  const int client = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, listener.path().c_str());
  ASSERT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  AgentSocket socket(listener.accept());
  listener.close();
  EXPECT_FALSE(fs::exists(listener.path()));
  const std::string text = "{\"event\":\"hello\"}\nno json\n{\"id\":1,";
  ASSERT_EQ(::write(client, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  std::vector<Json> got;
  EXPECT_TRUE(socket.receive([&](Json message) { got.push_back(std::move(message)); }));
  ASSERT_EQ(got.size(), 1u);
  ASSERT_EQ(::write(client, "\"ok\":true}\n", 11), 11);
  EXPECT_TRUE(socket.receive([&](Json message) { got.push_back(std::move(message)); }));
  EXPECT_EQ(got.back()["ok"], true);
  EXPECT_TRUE(socket.send({{"id", 2}}, 1));
  EXPECT_THROW(socket.send({{"text", std::string(2 << 20, 'x')}}, 1), Error);
  ::close(client);
  EXPECT_FALSE(socket.receive([](Json) {}));
}

TEST_F(DebuggerParts, ALongFolderGetsAShortSocket) {
  const fs::path deep = folder_ / std::string(120, 'd');
  fs::create_directory(deep);
  fs::path path;
  {
    AgentListener listener(deep);
    path = listener.path();
    EXPECT_LE(path.string().size(), 100u);
    EXPECT_TRUE(fs::exists(path));
    EXPECT_EQ(fs::read_symlink(deep / "agent.sock"), path);  // where a program looks that calls again
  }
  EXPECT_FALSE(fs::exists(path.parent_path()));
  EXPECT_FALSE(fs::is_symlink(deep / "agent.sock"));
}

TEST_F(DebuggerParts, WhatAKilledListenerHasLeftIsInNobodysWay) {
  write("agent.sock", "");
  const AgentListener listener(folder_);
  EXPECT_TRUE(fs::is_socket(folder_ / "agent.sock"));

  const fs::path deep = folder_ / std::string(120, 'd');
  fs::create_directory(deep);
  const pid_t killed = ::fork();
  if (killed == 0) {
    const AgentListener left(deep);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(killed, nullptr, 0);
  const fs::path before = fs::read_symlink(deep / "agent.sock");
  EXPECT_TRUE(fs::is_socket(before));
  const AgentListener next(deep);
  EXPECT_FALSE(fs::exists(before.parent_path()));
  EXPECT_TRUE(fs::is_socket(next.path()));
}

TEST(SessionRequest, WhatBecomesOfTheProgramIsKeptForTheNextService) {
  for (const char* then : {"wait", "continue", "terminate"}) {
    SessionRequest request;
    request.on_disconnect = then;
    EXPECT_EQ(request_from(json_from(request), "home").on_disconnect, then);
  }
  EXPECT_EQ(request_from({{"script", "old.py"}}, "home").on_disconnect, "continue");  // it knew of nothing else
}

}  // namespace
}  // namespace lockstep
