// The tutorial's lessons as data: what is said, what is typed, and what must come of it.
#pragma once
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

struct LessonFile {
  std::string_view name, text;
};

struct LessonStep {
  std::string_view say;                    // before the command
  std::string_view command;                // what to type
  int status = 0;                          // that it exits with
  std::vector<std::string_view> expect{};  // what its output holds
  std::string_view help{};                 // where it does not
  std::vector<LessonFile> files{};         // written before the step
  std::string_view input{};                // on its stdin
};

struct Lesson {
  std::string_view name, title;
  std::vector<LessonStep> steps;
  std::string_view closing;
};

std::span<const Lesson> lessons();

}  // namespace lockstep
