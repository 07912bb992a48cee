#pragma once
#include "base/file.h"
#include "cli/app.h"
#include "http/http_client.h"

namespace lockstep {

// Opens the page in the user's browser, with the token in the address's fragment, which stays in the browser. Says the
// address where no browser can be started.
void open_page(const App& app, const fs::path& home, const HttpTarget& target);

}  // namespace lockstep
