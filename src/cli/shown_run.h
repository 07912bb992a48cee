// The run that a command is about which either runs a program or shows an earlier run of one.
#pragma once
#include <functional>
#include <string>

#include "capture/recorded_program.h"
#include "cli/app.h"

namespace lockstep {

// `earlier` names a run; else the program of the request is run by `record`, with what it prints on standard error. A
// program that failed is said, and makes the command's exit status 3. Error{kUsage} when both or neither are given.
fs::path run_to_show(App& app, const std::string& command, const std::string& earlier, RecordRequest& request,
                     const std::function<RecordOutcome(const RecordRequest&)>& record);

}  // namespace lockstep
