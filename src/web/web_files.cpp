#include "web/web_files.h"

namespace lockstep {

const WebFile* find_web_file(std::string_view path) {
  for (const WebFile& file : web_files())
    if (file.path == path) return &file;
  return nullptr;
}

}  // namespace lockstep
