// Text from outside (names in files, what a program printed, arguments) made safe to show: whatever would steer a
// terminal, reorder or hide text is written as an escape that people can see.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

enum class Keep { kNothing, kLineBreaks };  // line breaks: and tabs, for text of several lines

// C0 and DEL as \x1b; C1 controls, bidirectional overrides and other invisible characters as \u202e; bytes that are no
// UTF-8 as \xff. Everything else stays.
std::string escaped(std::string_view text, Keep keep = Keep::kNothing);

// The same for the text of a JSON document, where such characters only occur inside strings: \u escapes, so that every
// reader gets the very same string. C0 is escaped by whoever wrote the document.
std::string escaped_in_json(std::string json);

}  // namespace lockstep
