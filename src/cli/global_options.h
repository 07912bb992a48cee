// What every command takes. Apart from app.h, so that what only prints does not compile the command line's parser.
#pragma once
#include <string>

namespace lockstep {

struct GlobalOptions {
  bool json = false, quiet = false, verbose = false, debug = false;
  std::string color = "auto", home;
};

}  // namespace lockstep
