#include "rest/page_files.h"

#include "base/error.h"
#include "rest/rest_server.h"
#include "web/web_files.h"

namespace lockstep {
namespace {

constexpr std::string_view kBelow = "/web/", kDocs = "/docs", kBelowDocs = "/docs/";
constexpr uint64_t kMostFileBytes = 8 << 20;

// Scripts and styles are ours alone; pictures may be made in the page from what was fetched with the token.
constexpr const char* kPolicy =
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

// Embedded, the modules come joined, as one file: a request each would take the browser longer than the view itself.
std::string index_page(std::string_view html, std::string_view version, bool embedded) {
  std::string out(html);
  replace_all(out, "@VERSION@", version);
  replace_all(out, "@ENTRY@", embedded ? "page.js" : "app.js");
  return out;
}

HttpResponse page_response(std::string_view type, const std::string& caching) {
  HttpResponse response;
  response.type = type;
  response.headers = {{"Cache-Control", caching},
                      {"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"}};
  return response;
}

HttpResponse nothing_here() {
  return error_response(Code::kNotFound, "[http] the page has no such file; try /");
}

// What the file holds, compressed where the client takes that; or that the client's own copy is still good.
void send_file(const WebFile& file, std::string_view version, const HttpRequest& request, HttpResponse& response) {
  const std::string tag = '"' + std::string(version) + '"';
  response.headers["ETag"] = tag;
  response.headers["Vary"] = "Accept-Encoding";
  if (request.header("if-none-match") == tag) {
    response.status = 304;
  } else if (!file.packed.empty() && request.header("accept-encoding").find("gzip") != std::string::npos) {
    response.headers["Content-Encoding"] = "gzip";
    response.body = file.packed;
  } else {
    response.body = file.plain;
  }
}

// Links between documents are relative, so the folder's own address must end in a slash.
HttpResponse document(const HttpRequest& request) {
  if (request.path == kDocs) {
    HttpResponse response = page_response("text/plain; charset=utf-8", "no-cache");
    response.status = 302;
    response.headers["Location"] = kBelowDocs;
    return response;
  }
  const std::string path = request.path == kBelowDocs ? "index.html" : request.path.substr(kBelowDocs.size());
  const WebFile* file = find_docs_file(path);
  if (!file) return error_response(Code::kNotFound, "[http] there is no such document; try /docs/");
  HttpResponse response = page_response(file->type, "no-cache");
  send_file(*file, docs_version(), request, response);
  return response;
}

}  // namespace

bool PageFiles::has(const HttpRequest& request) const {
  return (request.method == "GET" || request.method == "HEAD") &&
         (request.path == "/" || request.path.starts_with(kBelow) || request.path == kDocs ||
          request.path.starts_with(kBelowDocs));
}

HttpResponse PageFiles::answer(const HttpRequest& request) const {
  return request.path.starts_with(kDocs) ? document(request) : page(request);
}

HttpResponse PageFiles::page(const HttpRequest& request) const {
  const bool index = request.path == "/";
  std::string path = index ? "index.html" : request.path.substr(kBelow.size());
  std::string version(folder_.empty() ? web_version() : "dev");
  if (!index) {
    if (!path.starts_with(version + "/")) return nothing_here();
    path = path.substr(version.size() + 1);
  }
  const WebFile* file = find_web_file(path);
  if (!folder_.empty()) {
    // Only what a build would embed, and only below the folder.
    if (path.find("..") != std::string::npos || path.find('\0') != std::string::npos) return nothing_here();
    std::error_code error;
    const fs::path on_disk = folder_ / path;
    if (!fs::is_regular_file(on_disk, error)) return nothing_here();
    const std::string type = path.ends_with(".js")    ? "text/javascript; charset=utf-8"
                             : path.ends_with(".css") ? "text/css; charset=utf-8"
                             : path.ends_with(".svg") ? "image/svg+xml"
                                                      : "text/html; charset=utf-8";
    HttpResponse response = page_response(type, "no-store");
    response.body = read_text(on_disk, kMostFileBytes);
    if (index) response.body = index_page(response.body, version, false);
    return response;
  }
  if (!file) return nothing_here();
  HttpResponse response = page_response(file->type, index ? "no-cache" : "public, max-age=31536000, immutable");
  if (index) {
    const std::string html = index_page(file->plain, version, true);
    send_file({file->path, file->type, html, {}}, version, request, response);
  } else {
    send_file(*file, version, request, response);
  }
  return response;
}

}  // namespace lockstep
