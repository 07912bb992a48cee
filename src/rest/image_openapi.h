#pragma once
#include "base/json.h"

namespace lockstep {

void add_image_paths(Json& paths);  // of the routes that are not calls of the operations table

}  // namespace lockstep
