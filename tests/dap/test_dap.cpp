#include <gtest/gtest.h>

#include <condition_variable>

#include "base/error.h"
#include "dap/adapter.h"
#include "dap/fields.h"
#include "dap/log_message.h"
#include "dap/message.h"

namespace lockstep {
namespace {

std::vector<Json> read_in_pieces(const std::string& stream, size_t step) {
  DapReader reader;
  std::vector<Json> found;
  for (size_t at = 0; at < stream.size(); at += step) {
    reader.feed(std::string_view(stream).substr(at, step));
    while (auto message = reader.next()) found.push_back(std::move(*message));
  }
  return found;
}

TEST(DapMessage, ComesInAnyPieces) {
  const std::string stream = dap_frame({{"a", "\r\n\r\nContent-Length: 3"}}) + dap_frame({{"b", "ä"}}) +
                             "content-length:2\r\nContent-Type: x; charset=utf-8\r\n\r\n{}";
  for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, stream.size()}) {
    const std::vector<Json> found = read_in_pieces(stream, step);
    ASSERT_EQ(found.size(), 3u) << step;
    EXPECT_EQ(found[0]["a"], "\r\n\r\nContent-Length: 3");
    EXPECT_EQ(found[1]["b"], "ä");
    EXPECT_EQ(found[2], Json::object());
  }
}

TEST(DapMessage, RefusesWhatIsNotTheProtocol) {
  const auto refused = [](const std::string& stream) {
    try {
      read_in_pieces(stream, stream.size());
    } catch (const Error& error) {
      return error.code() == Code::kCorrupt;
    }
    return false;
  };
  const std::string launch = dap_frame({{"type", "request"}, {"command", "launch"}});
  EXPECT_TRUE(refused("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60\r\n\r\n" + launch));
  EXPECT_TRUE(refused("POST / HTTP/1.1\r\n")) << "at its first line, before anything of its body is looked at";
  EXPECT_TRUE(refused("Content-Length: -1\r\n\r\n{}"));
  EXPECT_TRUE(refused("Content-Length: 0x2\r\n\r\n{}"));
  EXPECT_TRUE(refused("Content-Length: \r\n\r\n{}"));
  EXPECT_TRUE(refused("Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"));
  EXPECT_TRUE(refused("Content-Type: x\r\n\r\n{}"));
  EXPECT_TRUE(refused("Content-Length: " + std::to_string(kMostDapMessageBytes + 1) + "\r\n\r\n"));
  EXPECT_TRUE(refused("Content-Length: 99999999999999999999999\r\n\r\n"));
  EXPECT_TRUE(refused(std::string(kMostDapHeaderBytes + 1, 'A'))) << "a line without an end";
  EXPECT_TRUE(refused([] {
    std::string lines;
    while (lines.size() <= kMostDapHeaderBytes) lines += "A: b\r\n";
    return lines;
  }()));
  EXPECT_TRUE(refused("Content-Length: 400\r\n\r\n" + std::string(200, '[') + std::string(200, ']')));
  EXPECT_TRUE(refused("Content-Length: 1\r\n\r\n{"));
}

TEST(DapLogMessage, IsOneExpression) {
  EXPECT_EQ(log_expression("plain"), "\"plain\"");
  EXPECT_EQ(log_expression("100 % of {{it}}"), "\"100 % of {it}\"");
  EXPECT_EQ(log_expression("{x}"), "(x\n)") << "alone it is the value itself, so that a tensor is summarised";
  EXPECT_EQ(log_expression("loss {loss} at {step}%"), "\"loss %s at %s%%\" % ((loss\n), (step\n), )");
  EXPECT_EQ(log_expression("{d['}']} {f({1})}"), "\"%s %s\" % ((d['}']\n), (f({1})\n), )");
  EXPECT_EQ(log_expression("open {x"), "\"open {x\"");
  EXPECT_EQ(log_expression("ä\n{}"), "\"\\u00e4\\n{}\"");
}

// A client that reads what the adapter writes, over a service that is a function.
class Editor {
 public:
  using Call = std::function<Json(const std::string& operation, const Json& arguments, CallControl&)>;
  explicit Editor(Call call) {
    DapService service;
    service.call = [call](const Operation& operation, const Json& given, CallControl& control) {
      checked_arguments(operation, given);
      return call(operation.name, given, control);
    };
    service.follow = [this](const std::string&, int64_t after, const std::function<bool(const Json&)>& use,
                            const std::function<bool()>& cancelled) {
      std::unique_lock lock(mutex_);
      for (auto at = static_cast<size_t>(after); !cancelled();) {
        changed_.wait_for(lock, std::chrono::milliseconds(5), [&] { return at < told_.size(); });
        while (at < told_.size()) {
          const Json event = told_[at++];
          lock.unlock();
          const bool more = use(event);
          lock.lock();
          if (!more) return;
        }
      }
    };
    adapter = std::make_unique<DapAdapter>(service, [this](const std::string& bytes) {
      const std::lock_guard lock(mutex_);
      reader_.feed(bytes);
      while (auto message = reader_.next()) messages_.push_back(std::move(*message));
      changed_.notify_all();
    });
  }
  ~Editor() { adapter.reset(); }

  void tell(Json event) {
    const std::lock_guard lock(mutex_);
    event["number"] = told_.size() + 1;
    told_.push_back(std::move(event));
    changed_.notify_all();
  }
  int64_t send(const std::string& command, const Json& arguments = Json::object()) {
    adapter->receive({{"seq", ++number_}, {"type", "request"}, {"command", command}, {"arguments", arguments}});
    return number_;
  }
  Json wait(const std::function<bool(const Json&)>& fits) {
    std::unique_lock lock(mutex_);
    Json found;
    changed_.wait_for(lock, std::chrono::seconds(20), [&] {
      for (const Json& message : messages_)
        if (fits(message)) found = message;
      return !found.is_null();
    });
    return found;
  }
  Json answer(int64_t number) {
    return wait([&](const Json& message) { return dap::whole(message, "request_seq", -1) == number; });
  }
  Json ask(const std::string& command, const Json& arguments = Json::object()) {
    return answer(send(command, arguments));
  }
  Json event(const std::string& name) {
    return wait([&](const Json& message) { return dap::text(message, "event") == name; });
  }
  std::vector<Json> messages() {
    const std::lock_guard lock(mutex_);
    return messages_;
  }

  std::unique_ptr<DapAdapter> adapter;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Json> messages_, told_;
  DapReader reader_;
  int64_t number_ = 0;
};

constexpr int64_t kThread = 139'698'288'483'201;  // as the system calls one

Json standing() {
  return {{"id", "s"}, {"state", "stopped"}, {"program", "a.py"}, {"pid", 1}};
}

void launch(Editor& editor) {
  editor.ask("initialize");
  EXPECT_EQ(editor.ask("launch", {{"program", "/a.py"}})["success"], true);
  editor.event("initialized");
  editor.ask("configurationDone");
}

TEST(DapAdapter, WhatIsUnknownIsRefusedAndTheRestGoesOn) {
  Editor editor([](const std::string&, const Json&, CallControl&) { return standing(); });
  EXPECT_EQ(editor.ask("stepBack")["success"], false);
  EXPECT_EQ(editor.ask("threads")["success"], false) << "nothing is debugged yet";
  EXPECT_EQ(editor.ask("launch", {{"program", 3}})["success"], false);
  EXPECT_EQ(editor.ask("variables", {{"variablesReference", 77}})["success"], false);
  EXPECT_EQ(editor.ask("initialize")["success"], true);
}

TEST(DapAdapter, GoingOnIsAnsweredBeforeTheNextStop) {
  Editor* told = nullptr;
  Editor editor([&](const std::string& operation, const Json&, CallControl&) {
    // The stop is known to the service's events before the call has returned.
    if (operation == "debug next")
      for (int i = 0; i < 3; ++i) {
        told->tell({{"event", "continued"}, {"thread", {{"id", kThread}}}});
        told->tell({{"event", "stopped"}, {"thread", {{"id", kThread}}}, {"reason", "step"}});
      }
    return standing();
  });
  told = &editor;
  launch(editor);
  editor.tell({{"event", "stopped"}, {"thread", {{"id", kThread}}}, {"reason", "breakpoint"}});
  const Json thread = editor.event("stopped")["body"]["threadId"];
  const int64_t next = editor.send("next", {{"threadId", thread}});
  const auto is_step = [](const Json& message) { return dap::text(dap::field(message, "body"), "reason") == "step"; };
  ASSERT_FALSE(editor.wait(is_step).is_null());
  bool answered = false;
  for (const Json& message : editor.messages()) {
    answered = answered || dap::whole(message, "request_seq", -1) == next;
    EXPECT_TRUE(answered || !is_step(message));
  }
}

TEST(DapAdapter, ACancelledRequestEndsAndIsAnswered) {
  std::atomic<bool> running = false;
  Editor editor([&](const std::string& operation, const Json&, CallControl& control) {
    if (operation != "debug eval") return standing();
    running = true;
    while (!control.cancelled()) std::this_thread::yield();
    fail(Code::kCancelled, "eval", "cancelled");
  });
  launch(editor);
  editor.tell({{"event", "stopped"}, {"thread", {{"id", kThread}}}, {"reason", "breakpoint"}});
  editor.event("stopped");
  const int64_t evaluation = editor.send("evaluate", {{"expression", "forever()"}});
  while (!running) std::this_thread::yield();
  const int64_t cancel = editor.send("cancel", {{"requestId", evaluation}});
  const Json answer = editor.answer(evaluation);
  EXPECT_EQ(answer["success"], false);
  EXPECT_EQ(answer["message"], "cancelled");
  EXPECT_EQ(editor.answer(cancel)["success"], true);
}

TEST(DapAdapter, NumbersOfFramesEndWithTheStop) {
  Editor editor([](const std::string& operation, const Json&, CallControl&) -> Json {
    if (operation != "debug stack") return standing();
    return {{"frames", Json::array({{{"index", 0}, {"location", {{"file", "/a.py"}, {"line", 3}}}}})}, {"total", 1}};
  });
  launch(editor);
  editor.tell({{"event", "stopped"}, {"thread", {{"id", kThread}}}, {"reason", "breakpoint"}});
  const Json thread = editor.event("stopped")["body"]["threadId"];
  const Json frame = editor.ask("stackTrace", {{"threadId", thread}})["body"]["stackFrames"][0];
  EXPECT_EQ(frame["line"], 3);
  EXPECT_EQ(editor.ask("scopes", {{"frameId", frame["id"]}})["success"], true);
  editor.ask("continue", {{"threadId", thread}});
  EXPECT_EQ(editor.ask("scopes", {{"frameId", frame["id"]}})["success"], false);
}

TEST(DapAdapter, ThreadsHaveSmallNumbersThatMeanOneThread) {
  std::mutex mutex;
  std::vector<int64_t> alive{kThread}, asked;
  Editor editor([&](const std::string& operation, const Json& arguments, CallControl&) -> Json {
    const std::lock_guard lock(mutex);
    if (operation == "debug pause") asked.push_back(dap::whole(arguments, "thread"));
    if (operation != "debug threads") return standing();
    Json threads = Json::array();
    for (const int64_t id : alive) threads.push_back({{"id", id}, {"name", "T"}});
    return {{"threads", threads}};
  });
  launch(editor);
  const auto numbers = [&] {
    std::vector<int64_t> found;
    const Json answer = editor.ask("threads");
    for (const Json& thread : answer["body"]["threads"]) found.push_back(thread["id"]);
    return found;
  };
  EXPECT_EQ(numbers(), (std::vector<int64_t>{1}));
  alive = {kThread, kThread + 64};
  EXPECT_EQ(numbers(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(editor.ask("pause", {{"threadId", 2.0}})["success"], true) << "some clients write 2 as 2.0";
  EXPECT_EQ(asked, (std::vector<int64_t>{kThread + 64}));
  alive = {kThread};
  numbers();
  alive = {kThread, kThread + 64};  // another thread, under the old one's address
  EXPECT_EQ(numbers(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(editor.ask("pause", {{"threadId", 2}})["success"], false);
}

TEST(DapAdapter, AClientThatIsGoneEndsWhatItStarted) {
  std::atomic<int> ended = 0;
  {
    Editor editor([&](const std::string& operation, const Json&, CallControl&) {
      ended += operation == "debug terminate";
      return standing();
    });
    launch(editor);
    editor.adapter->close();
    while (!editor.adapter->done()) std::this_thread::yield();
  }
  EXPECT_EQ(ended, 1);
}

TEST(DapAdapter, WhatItAttachedToGoesOnWithoutItsBreakpoints) {
  std::mutex mutex;
  std::vector<std::string> asked;  // but for the state of things, which events ask for at their own time
  Editor editor([&](const std::string& operation, const Json&, CallControl&) {
    const std::lock_guard lock(mutex);
    if (operation != "debug status") asked.push_back(operation);
    Json answer = standing();
    if (operation == "debug break") answer["breakpoint"] = {{"id", 4}, {"state", "verified"}, {"line", 2}};
    return answer;
  });
  editor.ask("initialize");
  editor.ask("attach", {{"session", "s"}});
  editor.ask("setBreakpoints", {{"source", {{"path", "/a.py"}}}, {"breakpoints", Json::array({{{"line", 2}}})}});
  editor.ask("configurationDone");
  {
    const std::lock_guard lock(mutex);
    asked.clear();
  }
  editor.ask("disconnect");
  const std::lock_guard lock(mutex);
  EXPECT_EQ(asked, (std::vector<std::string>{"debug remove", "debug continue"}));
}

}  // namespace
}  // namespace lockstep
