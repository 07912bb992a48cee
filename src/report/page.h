// The report's page: markup, style and script, with a place for the data. Each part is a string in a file of its own;
// page.cpp puts them together.
#pragma once
#include <string>

namespace lockstep {

std::string page_with(const std::string& json);

namespace page {
extern const char* const kStyle;
extern const char* const kBody;
extern const char* const kScriptData;      // the data, and how numbers and colours are made
extern const char* const kScriptFindings;  // verdict, first divergence, causes, notes
extern const char* const kScriptInside;    // lines of both sources inside the call that diverges first
extern const char* const kScriptCurve;     // error over the stages, zoomable
extern const char* const kScriptSteps;     // error over stages and steps
extern const char* const kScriptTensor;    // heat maps and histogram of the chosen tensor
extern const char* const kScriptPictures;  // images side by side, the ledger
extern const char* const kScriptTable;     // every tensor, filtered and sorted; only the rows in view exist
}  // namespace page

}  // namespace lockstep
