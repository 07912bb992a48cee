// What the machine offers is known to the program above us: it knows every library that is linked.
#pragma once
#include <functional>

#include "base/json.h"

namespace lockstep {

void set_machine_report(std::function<Json()> report);

}  // namespace lockstep
