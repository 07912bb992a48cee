// The verbs of `lockstep tensors`, one file each.
#pragma once
#include "cli/app.h"
#include "service/tensor_pick.h"

namespace lockstep {

void add_tensors_show(App& app, CLI::App& group);
void add_tensors_stats(App& app, CLI::App& group);
void add_tensors_clear(App& app, CLI::App& group);
void add_tensors_export(App& app, CLI::App& group);

// `tensors diff` and `weights compare` are one command under two names.
void add_diff(App& app, CLI::App& group, const std::string& name, const std::string& help, const std::string& examples);

}  // namespace lockstep
