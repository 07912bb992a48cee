// Tokenizes standard input for tests and benchmarks: prints the ids, or how long loading and encoding took.
//   tokenize_probe FOLDER ids|lines|prompt|time
// ids: of all the text. lines: of each line by itself, lines separated by NUL bytes. prompt: with the generate
// template. time: processor seconds to load, then the best seconds of several encodings, then the count of ids.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <iterator>
#include <string>

#include "base/error.h"
#include "text/prompt_template.h"

using namespace lockstep;

namespace {

template <typename Ids>
void print(const Ids& ids) {
  std::string line;
  for (const auto id : ids) line += std::to_string(id) + ' ';
  std::cout << line << '\n';
}

// Of the processor, not of the wall: one thread works, and a machine may be busy with other things.
double seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

int run(const std::string& folder, const std::string& mode) {
  std::ios::sync_with_stdio(false);
  const std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  double start = seconds();
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const double load = seconds() - start;
  if (mode == "ids") {
    print(tokenizer.encode(text));
  } else if (mode == "lines") {
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('\0', at), text.size());
      print(tokenizer.encode(std::string_view(text).substr(at, end - at)));
      at = end + 1;
    }
  } else if (mode == "prompt") {
    print(tokenize_prompt(tokenizer, text).ids);
  } else {
    double best = 1e9;
    size_t count = 0;
    for (int i = 0; i < 5; ++i) {
      start = seconds();
      count = tokenizer.encode(text).size();
      best = std::min(best, seconds() - start);
    }
    std::printf("%.6f %.6f %zu\n", load, best, count);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "tokenize_probe FOLDER ids|lines|prompt|time < text\n";
    return 2;
  }
  try {
    return run(argv[1], argv[2]);
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return exit_status(error.code());
  }
}
