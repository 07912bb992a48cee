// The page at "/": an HTML file that names its version of everything else, which may therefore be kept for ever. And
// the documents at "/docs/". Nothing here is secret, so none of it asks for the token.
#pragma once
#include <optional>
#include <string>

#include "base/file.h"
#include "http/http_server.h"

namespace lockstep {

class PageFiles {
 public:
  // `folder`: serve from there and keep nothing, for work on the page; empty: what is in the program.
  explicit PageFiles(fs::path folder = {}) : folder_(std::move(folder)) {}

  bool has(const HttpRequest& request) const;  // a GET or HEAD of "/" or of something below "/web/" or "/docs"
  HttpResponse answer(const HttpRequest& request) const;

 private:
  HttpResponse page(const HttpRequest& request) const;

  fs::path folder_;
};

}  // namespace lockstep
