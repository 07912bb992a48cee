#include "web/web_files.h"

namespace lockstep {
namespace {

const WebFile* find_among(std::span<const WebFile> files, std::string_view path) {
  for (const WebFile& file : files)
    if (file.path == path) return &file;
  return nullptr;
}

}  // namespace

const WebFile* find_web_file(std::string_view path) {
  return find_among(web_files(), path);
}

const WebFile* find_docs_file(std::string_view path) {
  return find_among(docs_files(), path);
}

}  // namespace lockstep
