#pragma once
#include <string>

#include "cli/app.h"

namespace lockstep {

// Opens the page in the user's browser, with the token in the address's fragment, which stays in the browser. Says the
// address where no browser can be started.
void open_page(const App& app, const std::string& host, int port, const std::string& token);

}  // namespace lockstep
