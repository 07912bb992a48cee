// JSON for whoever reads it, a terminal, a page or an agent: nothing in it steers a terminal or hides text.
#pragma once
#include <string>

#include "base/json.h"

namespace lockstep {

// One line, or indented; bytes that are no UTF-8 are replaced. Every reader gets the same strings.
std::string shown_json(const Json& document, int indent = -1);

// The document with every string and key escaped as people see them, line breaks and tabs aside: for pages and answers
// that are shown as they are.
Json with_strings_escaped(Json document);

}  // namespace lockstep
