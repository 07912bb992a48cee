#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "service/service.h"

namespace lockstep {
namespace {

std::string message_of(const std::string& name, const Json& arguments) {
  try {
    checked_arguments(known_operation(name), arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Operations, NamesAreUniqueAndEveryRowIsWhole) {
  std::set<std::string> names;
  for (const Operation& operation : operations()) {
    EXPECT_TRUE(names.insert(operation.name).second) << operation.name;
    EXPECT_FALSE(operation.help.empty()) << operation.name;
    EXPECT_FALSE(operation.examples.empty()) << operation.name;
    EXPECT_NE(operation.call, nullptr) << operation.name;
    EXPECT_FALSE(result_schema(operation)["properties"].empty()) << operation.name;
    std::set<std::string> arguments;
    for (const Argument& argument : operation.arguments) {
      EXPECT_TRUE(arguments.insert(argument.name).second) << operation.name << " " << argument.name;
      EXPECT_FALSE(argument.help.empty()) << operation.name << " " << argument.name;
    }
  }
}

TEST(Operations, AllThatWasPromisedIsThere) {
  for (const char* name :
       {"debug start",  "debug break",  "debug breaks",    "debug remove",  "debug clear",      "debug continue",
        "debug wait",   "debug pause",  "debug next",      "debug step",    "debug finish",     "debug until",
        "debug eval",   "debug set",    "debug vars",      "debug stack",   "debug location",   "debug source",
        "debug status", "debug log",    "debug terminate", "debug restart", "debug trace show", "debug trace export",
        "debug why",    "debug files",  "debug count",     "record",        "runs list",        "runs show",
        "tensors list", "tensors info", "tensors show",    "tensors diff",  "compare"})
    EXPECT_NE(find_operation(name), nullptr) << name;
}

TEST(Operations, OneNameInThreeSpellings) {
  EXPECT_EQ(find_operation("debug trace show"), find_operation("debug_trace_show"));
  EXPECT_EQ(find_operation("debug trace show"), find_operation("debug/trace/show"));
  EXPECT_EQ(find_operation("debug nothing"), nullptr);
}

TEST(Operations, DefaultsAreFilledIn) {
  const Json filled = checked_arguments(known_operation("debug continue"), Json::object());
  EXPECT_EQ(filled["max_wait"], Json(30.0));
  EXPECT_FALSE(filled.contains("session"));
}

TEST(Operations, WrongArgumentsAreNamed) {
  EXPECT_NE(message_of("debug break", {{"were", "x"}}).find("try where"), std::string::npos);
  EXPECT_NE(message_of("debug break", {{"where", 5}}).find("expected a text"), std::string::npos);
  EXPECT_NE(message_of("debug eval", Json::object()).find("'expression' is missing"), std::string::npos);
  EXPECT_NE(message_of("debug continue", {{"max_wait", -1}}).find("expected 0"), std::string::npos);
  EXPECT_NE(message_of("debug vars", {{"scope", "all"}}).find("local, global"), std::string::npos);
  EXPECT_NE(message_of("debug eval", {{"expression", std::string("a\0b", 3)}}).find("zero bytes"), std::string::npos);
  EXPECT_NE(message_of("debug eval", {{"expression", "\xff"}}).find("a text"), std::string::npos);
  EXPECT_NE(message_of("debug eval", Json::array()).find("no JSON object"), std::string::npos);
  EXPECT_EQ(message_of("debug eval", {{"expression", "1"}, {"session", nullptr}}), "");
}

TEST(Operations, TextBecomesTheArgumentsType) {
  const Operation& operation = known_operation("debug log");
  const Argument& lines = operation.arguments[1];
  EXPECT_EQ(value_from_text(operation, lines, "12"), Json(12));
  EXPECT_THROW(value_from_text(operation, lines, "12x"), Error);
  EXPECT_THROW(value_from_text(operation, lines, ""), Error);
}

TEST(Bounded, SmallAnswersStayWhole) {
  const Json small{{"a", 1}, {"list", {1, 2, 3}}};
  EXPECT_EQ(bounded(small, 1000), small);
}

TEST(Bounded, LongListsAndTextsAreCutAndSaidSo) {
  Json large{{"state", "stopped"}, {"lines", Json::array()}, {"text", std::string(50000, 'x')}};
  for (int i = 0; i < 5000; ++i) large["lines"].push_back("line " + std::to_string(i));
  const Json cut = bounded(large, 8000);
  EXPECT_LT(cut.dump().size(), 9000u);
  EXPECT_EQ(cut["state"], "stopped");
  EXPECT_EQ(cut["lines"][0], "line 0");
  EXPECT_TRUE(cut["lines"].is_array() && cut["text"].is_string());
  EXPECT_EQ(cut["left_out"]["parts"].size(), 2u);
}

TEST(Service, NothingToFindIsAnError) {
  const fs::path home = fs::temp_directory_path() / ("lockstep-service-test-" + std::to_string(::getpid()));
  Service service(home);
  CallControl control;
  EXPECT_THROW(service.call(known_operation("debug status"), Json::object(), control), Error);
  EXPECT_THROW(service.call(known_operation("debug start"), {{"script", "/absent.py"}}, control), Error);
  EXPECT_EQ(service.call(known_operation("debug sessions"), Json::object(), control)["total"], Json(0));
  fs::remove_all(home);
}

}  // namespace
}  // namespace lockstep
