// The verbs of `lockstep tensors`, one file each.
#pragma once
#include "cli/app.h"
#include "io/tensor_info.h"

namespace lockstep {

void add_tensors_show(App& app, CLI::App& group);
void add_tensors_stats(App& app, CLI::App& group);
void add_tensors_diff(App& app, CLI::App& group);
void add_tensors_export(App& app, CLI::App& group);

Json json_from(const TensorInfo& info);

}  // namespace lockstep
