// The versions of the outside libraries that are loaded now, where a library can say; else those it was built with.
#include <fmt/format.h>
#include <hwy/highway.h>
#include <omp.h>

#define PCRE2_CODE_UNIT_WIDTH 8  // pcre2.h asks for it
#include <pcre2.h>
#include <png.h>
#include <simdjson.h>
#include <utf8proc.h>
#include <webp/encode.h>
#include <xxhash.h>
#include <zlib.h>

#include <CLI/Version.hpp>
#include <cstdio>
// after cstdio, which it needs and does not include
#include <jpeglib.h>

#include <nlohmann/json.hpp>

#include "backend/cpu/onednn.h"
#include "cli/machine.h"

namespace lockstep {
namespace {

std::string pcre2_text() {
  char text[64] = {};
  return pcre2_config(PCRE2_CONFIG_VERSION, text) > 0 ? text : "";
}

std::string webp_text() {
  const int version = WebPGetEncoderVersion();
  return fmt::format("{}.{}.{}", version >> 16 & 255, version >> 8 & 255, version & 255);
}

std::string xxhash_text() {
  const unsigned version = XXH_versionNumber();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions() {
  return {
      {"oneDNN", cpu::OneDnn::is_there() ? cpu::OneDnn::version() : "none: built without it"},
      {"Highway", fmt::format("{}.{}.{}, best target {}", HWY_MAJOR, HWY_MINOR, HWY_PATCH,
                              hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets()))},
      {"OpenMP", fmt::format("{}, {} threads", _OPENMP, omp_get_max_threads())},
      {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"nlohmann-json",
       fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
      {"simdjson", fmt::format("{}.{}.{}", int(simdjson::SIMDJSON_VERSION_MAJOR), int(simdjson::SIMDJSON_VERSION_MINOR),
                               int(simdjson::SIMDJSON_VERSION_REVISION))},
      {"CLI11", CLI11_VERSION},
      {"libpng", png_get_libpng_ver(nullptr)},
      {"libjpeg", fmt::format("API {}, turbo {}", JPEG_LIB_VERSION, LIBJPEG_TURBO_VERSION_NUMBER)},
      {"libwebp", webp_text()},
      {"zlib", zlibVersion()},
      {"PCRE2", pcre2_text()},
      {"utf8proc", utf8proc_version()},
      {"xxHash", xxhash_text()},
  };
}

}  // namespace lockstep
