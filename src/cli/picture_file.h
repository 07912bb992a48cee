// A picture's file as the user named it, judged before the hours that making the picture may take.
#pragma once
#include <string>

#include "base/file.h"

namespace lockstep {

// A format that we write, in a folder that exists. `operation` is for the message.
void check_picture_file(const std::string& operation, const fs::path& path);

}  // namespace lockstep
