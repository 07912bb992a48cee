#include "base/text.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/broken_pipe.h"
#include "base/error.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_output() {
  end_if_nobody_reads();
  fail(Code::kIo, "output", std::string("stdout cannot be written: ") + std::strerror(errno));
}

}  // namespace

Text Text::from_lines(std::string_view outside, std::string_view indent) {
  std::string out;
  for (size_t begin = 0; begin < outside.size();) {
    const size_t end = std::min(outside.find('\n', begin), outside.size());
    if (begin > 0) out += indent;
    out += escaped(outside.substr(begin, end - begin), Keep::kLineBreaks);
    if (end < outside.size()) out += '\n';
    begin = end + 1;
  }
  return trusted(std::move(out));
}

void print(const Text& text) {
  if (std::fwrite(text.string().data(), 1, text.string().size(), stdout) != text.string().size()) refuse_output();
}

void print_error(const Text& text) {
  // One call: lines of several threads do not mix.
  if (std::fwrite(text.string().data(), 1, text.string().size(), stderr) != text.string().size()) end_if_nobody_reads();
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) refuse_output();
}

}  // namespace lockstep
