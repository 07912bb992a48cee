#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "zoom/program.h"

namespace lockstep::zoom {
namespace {

// A source file for as long as a test runs.
class SourceFile {
 public:
  explicit SourceFile(std::string_view text) : name_((fs::temp_directory_path() / "zoom-XXXXXX.py").string()) {
    const int descriptor = mkstemps(name_.data(), 3);
    EXPECT_GE(descriptor, 0);
    close(descriptor);
    write_atomically(name_, text);
  }
  ~SourceFile() { fs::remove(name_); }
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

TEST(ZoomGivenLines, AParameterThatAFunctionWasGivenIsNamedWhereItWasGiven) {
  const SourceFile source(
      "def scaled(x, gain):\n    return x * gain\n\nq = scaled(x, self.q_gain)\nk = scaled(y, self.q_gain)\n");
  const auto program = [](const std::string& file, bool wrong) {
    Program p(file);
    const int x = p.leaf(Origin::kInput, "x", {4, 8}, 1), y = p.leaf(Origin::kInput, "y", {4, 8}, 4);
    const int q_gain = p.leaf(Origin::kParameter, "q_gain", {8}, 2),
              k_gain = p.leaf(Origin::kParameter, "k_gain", {8}, 3);
    p.in_call_of(4);
    const int q = p.operation(2, "mul", {{"input", x}, {"other", q_gain}});
    p.in_call_of(5);
    const int k = p.operation(2, "mul", {{"input", y}, {"other", wrong ? q_gain : k_gain}});
    p.in_call_of(0);
    return p.result(p.operation(6, "concatenate", {{"0", p.operation(6, "tanh", {{"input", q}})}, {"1", k}}));
  };
  Side reference = program("reference.py", false), yours = program(source.name(), true);
  EXPECT_EQ(lines_named_for(reference, yours), std::set<int>{5});
}

TEST(ZoomGivenLines, NumbersThatAFunctionWasGivenAreNamedWhereTheyWereGiven) {
  const SourceFile source("def part(x, top):\n    return x[top : top + 2]\n\na = part(x, 2)\n");
  const auto program = [](const std::string& file, size_t top) {
    Program p(file);
    const int x = p.leaf(Origin::kInput, "x", {5, 8}, 1);
    const std::vector<float> all = p.numbers(x).values;
    p.in_call_of(4);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(8 * top);
    const int part = p.result_of(2, "getitem", {{"input", x}}, {{2, 8}, {begin, begin + 16}});
    p.in_call_of(0);
    return p.result(p.operation(5, "tanh", {{"input", part}}));
  };
  Side reference = program("reference.py", 1), yours = program(source.name(), 2);
  EXPECT_EQ(lines_named_for(reference, yours), (std::set<int>{2, 4}));
}

}  // namespace
}  // namespace lockstep::zoom
