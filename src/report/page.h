// The report's page: markup, style and script in one string, with a place for the data.
#pragma once

namespace lockstep {

extern const char* const kPage;

}  // namespace lockstep
