// lockstep weights compare A B
#pragma once
#include "cli/app.h"

namespace lockstep {

void add_weights_compare(App& app, CLI::App& group);

}  // namespace lockstep
