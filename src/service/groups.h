// The table's rows, by what they are about. One file each.
#pragma once
#include <vector>

#include "service/operation.h"

namespace lockstep {

std::vector<Operation> program_operations();       // debug start, restart, terminate, status, log, sessions, trace ...
std::vector<Operation> breakpoint_operations();    // debug break, breaks, remove, clear, why
std::vector<Operation> running_operations();       // debug continue, wait, pause, next, step, finish, until
std::vector<Operation> looking_operations();       // debug eval, set, vars, stack, location, source, files ...
std::vector<Operation> editor_operations();        // debug complete, loaded, exceptions, picture
std::vector<Operation> twin_operations();          // debug twin start, continue, next, vars, eval, substitute ...
std::vector<Operation> recorded_operations();      // record, runs, tensors
std::vector<Operation> compare_operations();       // compare
std::vector<Operation> zoom_operations();          // zoom, debug zoom
std::vector<Operation> toolbox_operations();       // coverage, health, clean, kill-all
std::vector<Operation> tensor_view_operations();   // runs tensors, tensors slice, heat, histogram, channels
std::vector<Operation> compare_view_operations();  // compare rows, tree, heat, picture
std::vector<Operation> source_line_operations();   // compare source
std::vector<Operation> map_file_operations();      // maps list, show, save
std::vector<Operation> machine_operations();       // doctor
std::vector<Operation> picture_operations();       // jobs, models: pictures on request

// What a program said when it ended: breakpoints, reasons, files, checkpoints. On disk too, for when the service has
// gone since.
Json last_words(Service& service, const std::string& spec);

// Sets one breakpoint, as `debug break` does. Takes that operation's arguments.
Json set_breakpoint(Service& service, const Json& arguments, CallControl& control);

// What every operation on a session takes.
Argument session_argument();
Argument max_wait_argument(double standard);
// What those take that look into a stopped program.
Argument frame_argument();
Argument thread_argument();
// What every operation takes whose answer is a list.
Argument limit_argument(const char* items, int64_t standard, int64_t most);
Argument from_argument();

}  // namespace lockstep
