// lockstep tutorial: learn by typing the real commands in a scratch folder.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/names.h"
#include "base/new_folder.h"
#include "base/platform/executable.h"
#include "base/text.h"
#include "cli/app.h"
#include "cli/question.h"
#include "cli/terminal.h"
#include "cli/tutorial_lessons.h"
#include "client/service_process.h"
#include "debugger/child_process.h"

namespace lockstep {
namespace {

constexpr double kLongestSecs = 300;

struct TutorialOptions {
  std::string lesson;
  bool automatic = false, list = false;
};

// Words as a shell splits them; none where a quote is left open.
std::optional<std::vector<std::string>> words_of(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == ' ' || c == '\t') {
      if (inside) words.push_back(word);
      word.clear();
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (inside) words.push_back(word);
  return quote == 0 ? std::optional(words) : std::nullopt;
}

// In lines of at most so many characters.
std::string wrapped(std::string_view text, size_t width) {
  std::string out;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const size_t length = end - at;
    if (column > 0) {
      const bool fits = column + 1 + length <= width;
      out += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    out += text.substr(at, length);
    column += length;
    at = end + 1;
  }
  return out;
}

// A folder for the programs, the runs and the sessions of a lesson, which go with it.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() {
    try {
      stop_service(home());
    } catch (const Error&) {  // it has none
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const fs::path& path() const { return folder_.path(); }
  fs::path home() const { return path() / ".lockstep"; }

  void write(const LessonFile& file) const {
    fs::create_directories((path() / file.name).parent_path());
    write_atomically(path() / file.name, std::string(file.text));
  }

  struct Outcome {
    int status = 0;
    std::string output;
  };
  Outcome run(std::vector<std::string> words, std::string_view input, bool color) const {
    words[0] = own_program().string();
    words.insert(words.begin() + 1, {"--color", color ? "always" : "never"});
    ChildRequest request;
    request.argv = std::move(words);
    request.environment = current_environment();
    request.environment["LOCKSTEP_HOME"] = home().string();
    request.cwd = path();
    request.output = path() / ".output";
    std::error_code ignored;
    fs::remove(request.output, ignored);
    if (!input.empty()) {
      request.input = path() / ".input";
      write_atomically(request.input, std::string(input));
    }
    ChildProcess child(request);
    ChildEnd end;
    for (double secs = 0; !child.try_wait(end); secs += 0.05) {
      check_interrupt("tutorial");
      if (secs > kLongestSecs) fail(Code::kIo, "tutorial", "the command does not end");
      pollfd watched{child.end_descriptor(), POLLIN, 0};
      ::poll(&watched, 1, 50);
    }
    return {end.exit_code(), read_text(request.output, 64 << 20)};
  }

 private:
  TemporaryFolder folder_{"lockstep-tutorial-", "tutorial"};
};

bool fulfils(const LessonStep& step, const Scratch::Outcome& outcome) {
  return outcome.status == step.status &&
         std::all_of(step.expect.begin(), step.expect.end(),
                     [&](std::string_view wanted) { return outcome.output.find(wanted) != std::string::npos; });
}

class Teacher {
 public:
  Teacher(App& app, bool automatic) : terminal_(app.global), automatic_(automatic), silent_(app.global.json) {}

  // False: the pupil has left.
  bool teach(const Lesson& lesson) {
    const Scratch scratch;
    say(Text::of("\n{}\n", terminal_.styled(fmt::format("{}: {}", lesson.name, lesson.title), Style::kBold)));
    for (size_t i = 0; i < lesson.steps.size(); ++i) {
      const LessonStep& step = lesson.steps[i];
      for (const LessonFile& file : step.files) scratch.write(file);
      say(Text::of("\n[{}/{}]\n", i + 1, lesson.steps.size()) + lines_of(step.say));
      if (!take(lesson, step, i, scratch)) return false;
    }
    say("\n" + lines_of(lesson.closing));
    return true;
  }

 private:
  bool take(const Lesson& lesson, const LessonStep& step, size_t number, const Scratch& scratch) {
    while (true) {
      const std::optional<std::string> typed = asked(step);
      if (!typed) return false;
      const auto words = words_of(*typed);
      if (!words || words->empty() || words->front() != "lockstep") {
        say(Text::of("Here you type lockstep commands, such as: {}\n", step.command));
        continue;
      }
      const Scratch::Outcome outcome = scratch.run(*words, step.input, !automatic_ && terminal_.color());
      // What our own program printed has been made safe to show already.
      say(Text::trusted(outcome.output));
      if (fulfils(step, outcome)) return true;
      if (automatic_)
        fail(Code::kInternal, "tutorial",
             fmt::format("step {} of {} did not go as the lesson says", number + 1, lesson.name),
             {.expected = fmt::format("status {} and '{}'", step.status, fmt::join(step.expect, "', '")),
              .got = fmt::format("status {}: {}", outcome.status, outcome.output.substr(0, 2000))});
      say(Text::of("That is not quite it. {}\n", step.help));
    }
  }

  // What is to be run: the step's own command for an empty line. None: the pupil leaves.
  std::optional<std::string> asked(const LessonStep& step) const {
    const Text command = terminal_.styled(step.command, Style::kCyan);
    if (automatic_) {
      say(Text::of("$ {}\n", command));
      return std::string(step.command);
    }
    print("type: {}   (Enter types it for you, quit leaves)\n$ ", command);
    flush_output();
    std::string line;
    if (!std::getline(std::cin, line) || line == "quit" || line == "exit") return std::nullopt;
    return line.find_first_not_of(" \t") == std::string::npos ? std::string(step.command) : line;
  }

  Text lines_of(std::string_view text) const {  // a lesson's own words
    return Text::trusted(wrapped(text, static_cast<size_t>(std::clamp(terminal_.width(), 40, 100))) + "\n");
  }
  void say(const Text& text) const {
    if (!silent_) print("{}", text);
  }

  Terminal terminal_;
  bool automatic_, silent_;
};

const Lesson& lesson_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Lesson& lesson : lessons()) {
    if (lesson.name == name) return lesson;
    names.emplace_back(lesson.name);
  }
  const std::vector<std::string> near = nearest_names(name, names, 1);
  fail(Code::kUsage, "tutorial", "there is no lesson '" + name + "'",
       {.expected = fmt::format("{}", fmt::join(names, ", ")), .hint = near.empty() ? "compare" : near[0]});
}

void run_tutorial(App& app, const TutorialOptions& options) {
  Json taught = Json::array();
  const auto entry = [](const Lesson& lesson) {
    return Json{{"name", lesson.name}, {"title", lesson.title}, {"steps", lesson.steps.size()}};
  };
  if (options.list) {
    for (const Lesson& lesson : lessons()) {
      taught.push_back(entry(lesson));
      if (!app.global.json) print("{:<10} {}\n", lesson.name, lesson.title);
    }
    if (app.global.json) print_json({{"lessons", taught}});
    return;
  }
  if (!options.automatic && (app.global.json || !somebody_is_there()))
    fail(Code::kUsage, "tutorial", "a tutorial talks to a person at a terminal", {.hint = "--auto to see it played"});
  Teacher teacher(app, options.automatic);
  std::vector<const Lesson*> chosen;
  if (!options.lesson.empty())
    chosen.push_back(&lesson_named(options.lesson));
  else
    for (const Lesson& lesson : lessons()) chosen.push_back(&lesson);
  for (const Lesson* lesson : chosen) {
    if (!teacher.teach(*lesson)) {
      print("\nGo on any time with: lockstep tutorial {}\n", lesson->name);
      return;
    }
    taught.push_back(entry(*lesson));
    if (!options.automatic && lesson != chosen.back() && !agreed("\nOn to the next lesson?")) return;
  }
  if (app.global.json) print_json({{"lessons", taught}});
}

}  // namespace

void add_tutorial(App& app) {
  CLI::App* command = app.cli.add_subcommand("tutorial", "learn Lockstep by typing its commands in a scratch folder");
  command->footer("lockstep tutorial\nlockstep tutorial debug\nlockstep tutorial --list");
  auto options = std::make_shared<TutorialOptions>();
  command->add_option("lesson", options->lesson, "compare, debug, coverage or agents (default: all in turn)");
  command->add_flag("--auto", options->automatic, "play the lessons automatically, and fail if a step does not work");
  command->add_flag("--list", options->list, "list the lessons");
  command->callback([&app, options] { run_tutorial(app, *options); });
}

}  // namespace lockstep
