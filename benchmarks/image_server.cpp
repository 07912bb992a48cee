// What the image server is measured with: the pipeline alone, and many clients at once.
//   bench_image_server draw MODEL THREADS     lines of JSON in, each the body of a request; {"secs": ...} for each out
//   bench_image_server ask PORT TOKEN         the same lines in, each sent to the server; {"secs": ...} for each out
//   bench_image_server connect PORT TOKEN COUNT   asks /v1/health from COUNT connections that are opened together;
//                                                 {"status": 200, "secs": ...} for each out
// `draw` makes what the server makes of that body, from the request that has been read to the encoded picture, in a
// process of its own whose model is loaded. `connect` is one thread: a client of one thread a connection would measure
// its own threads.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>

#include "base/error.h"
#include "io/image.h"
#include "pipeline/generate.h"
#include "studio/draw_request.h"

namespace {

using namespace lockstep;

constexpr size_t kMostAnswerBytes = 8 << 20;

class EverythingKept : public PartShelf {
 public:
  Part part(const std::string& name, const std::function<Part()>& load) override {
    Part& kept = kept_[name];
    if (!kept) kept = load();
    return kept;
  }

 private:
  std::map<std::string, Part> kept_;
};

double draw(const ModelFolder& model, Backend& backend, PartShelf& shelf, const Json& fields) {
  const DrawRequest read = read_draw_request("generate", fields, std::make_shared<Uploads>(), "bench", model);
  const GenerateRequest request = read.picture(0);
  GenerateSettings settings = read.settings();
  settings.shelf = &shelf;
  const auto began = std::chrono::steady_clock::now();
  const std::vector<GeneratedImage> images = generate(model, backend, settings, {request});
  const GeneratedImage& image = images.front();
  const std::string bytes =
      encode_image(read.output_format, {image.pixels, picture_text(request, image, model)}, kPictureQuality);
  const double secs = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return bytes.empty() ? 0 : secs;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

sockaddr_in own_address(int port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return where;
}

struct Client {
  int fd = -1;
  double began = 0, ended = 0;
  bool asked = false;
  std::string answer;
  int status() const { return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : 0; }
  bool whole() const {
    const size_t head = answer.find("\r\n\r\n"), length = answer.find("Content-Length: ");
    return head != std::string::npos && length < head &&
           answer.size() >= head + 4 + static_cast<size_t>(std::atol(answer.c_str() + length + 16));
  }
};

void connect_together(int port, const std::string& token, int count) {
  constexpr double kMostSecs = 12;
  const std::string request = "GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                              "\r\nAuthorization: Bearer " + token + "\r\n\r\n";
  const sockaddr_in where = own_address(port);
  std::vector<Client> clients(static_cast<size_t>(count));
  std::vector<pollfd> watched;
  for (Client& client : clients) client.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  for (Client& client : clients) {
    client.began = now();
    if (::connect(client.fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 && errno != EINPROGRESS)
      client.ended = now();
    watched.push_back({client.fd, POLLOUT, 0});
  }
  const double until = now() + kMostSecs;
  for (int open = count; open > 0 && now() < until;) {
    open = 0;
    if (::poll(watched.data(), watched.size(), 100) < 0) break;
    for (size_t i = 0; i < clients.size(); ++i) {
      Client& client = clients[i];
      if (watched[i].revents != 0 && !client.asked) {
        client.asked =
            ::send(client.fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size());
        watched[i].events = POLLIN;
        if (!client.asked) client.ended = now();
      } else if (watched[i].revents != 0) {
        char buffer[4096];
        const ssize_t n = ::recv(client.fd, buffer, sizeof buffer, 0);
        if (n > 0) client.answer.append(buffer, static_cast<size_t>(n));
        if (n <= 0 || client.whole()) client.ended = now();
      }
      if (client.ended > 0 && client.fd >= 0) {
        ::close(client.fd);
        client.fd = watched[i].fd = -1;
        watched[i].revents = 0;
      }
      open += client.ended > 0 ? 0 : 1;
    }
  }
  for (const Client& client : clients)
    std::printf("{\"status\": %d, \"secs\": %.9f}\n", client.whole() ? client.status() : 0,
                (client.ended > 0 ? client.ended : now()) - client.began);
}

// Seconds from the connect to the end of the answer, or an Error.
double ask(int port, const std::string& token, const std::string& body, std::vector<char>& buffer) {
  const std::string request = "POST /v1/images/generations HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                              "\r\nAuthorization: Bearer " + token +
                              "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                              "\r\n\r\n" + body;
  const sockaddr_in where = own_address(port);
  size_t size = 0;
  const double began = now();
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool sent = fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0;
  sent = sent && ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size());
  for (ssize_t n = sent; n > 0; size += static_cast<size_t>(n)) {  // it closes behind the answer
    n = ::recv(fd, buffer.data() + size, buffer.size() - size, 0);
    if (n <= 0) break;
  }
  const double secs = now() - began;
  ::close(fd);
  const std::string_view answer(buffer.data(), size);
  if (!answer.starts_with("HTTP/1.1 200 "))
    fail(Code::kIo, "bench", "the server refused: " + std::string(answer.substr(0, 500)));
  return secs;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "connect" && argc == 5) {
    connect_together(std::atoi(argv[2]), argv[3], std::atoi(argv[4]));
    return 0;
  }
  if ((what != "draw" && what != "ask") || argc != 4) {
    std::fputs("usage: bench_image_server draw MODEL THREADS | ask PORT TOKEN | connect PORT TOKEN COUNT\n", stderr);
    return 2;
  }
  try {
    if (what == "ask") {
      std::vector<char> buffer(kMostAnswerBytes);
      for (std::string line; std::getline(std::cin, line);) {
        std::printf("{\"secs\": %.9f}\n", ask(std::atoi(argv[2]), argv[3], line, buffer));
        std::fflush(stdout);
      }
      return 0;
    }
    const ModelFolder model = ModelFolder::open(argv[2]);
    const std::unique_ptr<Backend> backend = make_backend("cpu", std::atoi(argv[3]));
    EverythingKept shelf;
    for (std::string line; std::getline(std::cin, line);) {
      std::printf("{\"secs\": %.9f}\n", draw(model, *backend, shelf, parse_json(line, "a line")));
      std::fflush(stdout);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}
