#pragma once

namespace lockstep {

struct App;
void add_dap(App& app);

}  // namespace lockstep
