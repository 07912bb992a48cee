#include "cli/last_words.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "cli/app.h"

namespace lockstep {
namespace {

bool records = false;  // the program's status is then the recorded one's, and ours a number of its own

// What a failed allocation leaves behind may be noticed only later, where no exception tells of it any more: a JSON
// value that got its type and not its content asserts in its destructor.
thread_local bool memory_was_refused = false;

constexpr std::string_view kNoMemory = "[memory] the system has no more memory to give; try a smaller size";

[[noreturn]] void refuse_memory() {
  memory_was_refused = true;
  throw std::bad_alloc();
}

// Memory may be what is missing: nothing is allocated here.
void write_words(std::string_view words) {
  static_cast<void>(!::write(STDERR_FILENO, words.data(), words.size()));
}

[[noreturn]] void end_with(std::string_view prefix, std::string_view what, Code code) {
  write_words(prefix);
  char shown[1024];  // it may quote a file: what could steer a terminal is left out, without memory for escapes
  const size_t bytes = std::min(what.size(), sizeof shown);
  std::transform(what.begin(), what.begin() + static_cast<std::ptrdiff_t>(bytes), shown,
                 [](char c) { return c >= ' ' && c <= '~' ? c : '?'; });
  write_words({shown, bytes});
  write_words("\n");
  // Files are whole or absent, and a run that nobody holds any more is recovered by its next reader: there is nothing
  // to undo, and other threads may be anywhere.
  ::_exit(records ? kRecordFailed : exit_status(code));
}

[[noreturn]] void say_last_words() {
  if (const std::exception_ptr thrown = std::current_exception()) try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      end_with("lockstep: ", error.what(), error.code());
    } catch (const std::bad_alloc&) {
      end_with("lockstep: ", kNoMemory, Code::kMemory);
    } catch (const std::system_error& error) {
      end_with("lockstep: [system] ", error.what(), Code::kIo);
    } catch (const std::exception& error) {
      end_with("lockstep: [internal] ", error.what(), Code::kInternal);
    } catch (...) {
    }
  if (memory_was_refused) end_with("lockstep: ", kNoMemory, Code::kMemory);
  std::abort();  // no exception at all: a bug, and a core is of more use than a status
}

}  // namespace

void install_last_words(int argc, char** argv) {
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i)
    records = records || !std::strcmp(argv[i], "record");
  take_assertions();
  std::set_terminate(say_last_words);
  std::set_new_handler(refuse_memory);
}

void answer_for_assertion(const char* condition, const char* file, unsigned line) {
  if (memory_was_refused) end_with("lockstep: ", kNoMemory, Code::kMemory);
  char words[512];
  const int bytes =
      std::snprintf(words, sizeof words, "lockstep: [internal] %s:%u: '%s' does not hold\n", file, line, condition);
  write_words({words, std::min(sizeof words - 1, static_cast<size_t>(std::max(bytes, 0)))});
  std::abort();  // a bug: a core is of more use than a status
}

}  // namespace lockstep
