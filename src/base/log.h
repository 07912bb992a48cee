// What the program does, for whoever asks with --verbose: files opened and written, decisions, times. On stderr, off by
// default, and free when off.
#pragma once
#include <fmt/format.h>

#include <string_view>

namespace lockstep {

void set_verbose(bool on);
bool verbose();
void write_note(std::string_view operation, std::string_view text);  // "[   0.012 s] open: ..."

template <typename... Values>
void note(std::string_view operation, fmt::format_string<Values...> format, Values&&... values) {
  if (verbose()) write_note(operation, fmt::format(format, std::forward<Values>(values)...));
}

}  // namespace lockstep
