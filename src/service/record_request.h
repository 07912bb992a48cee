// What every operation takes that runs a program of the caller's.
#pragma once
#include <vector>

#include "capture/recorded_program.h"
#include "service/operation.h"

namespace lockstep {

std::vector<Argument> program_arguments();
// Of checked arguments. `control` must outlive the request: it tells when nobody waits any more.
RecordRequest record_request_from(Service& service, const Json& arguments, CallControl& control);

}  // namespace lockstep
