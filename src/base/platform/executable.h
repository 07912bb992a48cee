// The program's own file and command line, as the system knows them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

std::filesystem::path own_program();          // empty: the system does not say
std::vector<std::string> own_command_line();  // argv as the process was started; empty: the system does not say
char** environment_entries();                 // "NAME=value", the last one null; also from inside a library

struct ProgramFile {
  int64_t modified_secs = 0, modified_nanosecs = 0;
  uint64_t bytes = 0;
};
ProgramFile own_program_file();  // of the file that runs, even where its name means another one by now

// Replaces this process by the same program, started anew with this environment. Returns only when that failed.
void start_program_anew(char** argv);

const char* library_suffix();    // ".so": of a library that a program opens or links
const char* preload_variable();  // names libraries that go before all others
const char* page_opener();       // the program that opens a page as the desktop has chosen

}  // namespace lockstep
