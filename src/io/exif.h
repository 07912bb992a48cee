// What an EXIF block says of a picture: how it is turned, and the text that made it. Blocks come with or without their
// "Exif\0\0" prefix.
#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace lockstep {

// The orientation tag; 1 when absent or damaged, because a broken tag must not make a readable picture unreadable.
int exif_orientation(std::span<const std::byte> exif);

// Text as exif_with_text writes it; empty when there is none.
std::map<std::string, std::string> exif_text(std::span<const std::byte> exif);

// A TIFF block without prefix: description = "prompt", software = "software", and all of it as a JSON object in the
// user comment. Values that do not fit are cut.
std::string exif_with_text(const std::map<std::string, std::string>& text, size_t most_bytes);

}  // namespace lockstep
