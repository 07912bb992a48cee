#pragma once

namespace lockstep {

double wall_secs();  // of the system's clock, since 1970

}  // namespace lockstep
