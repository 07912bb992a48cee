// HTTP, called.
#pragma once
#include <functional>
#include <map>
#include <string>

namespace lockstep {

struct HttpAnswer {
  int status = 0;  // 0: nobody answered
  std::string type, body, error;
  std::map<std::string, std::string> headers;
};

struct HttpTarget {
  std::string host = "127.0.0.1";
  int port = 0;
  std::string token;
  double timeout_secs = 60;
};

HttpAnswer http_call(const HttpTarget& target, const std::string& method, const std::string& path,
                     const std::string& body = {}, const std::function<bool()>& cancelled = {});
// Hands on the body as it comes, until `use` says false or the server is done.
HttpAnswer http_stream(const HttpTarget& target, const std::string& path,
                       const std::function<bool(const std::string&)>& use, const std::function<bool()>& cancelled = {});

}  // namespace lockstep
