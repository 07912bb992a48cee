// The whole program as one call, apart from what the commands share: main() need not read the command line's library.
#pragma once

namespace lockstep {

int run_app(int argc, char** argv);  // the exit status

}  // namespace lockstep
