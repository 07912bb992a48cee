// Heads of requests, before the library sees them.
#include "http/http_head.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

int status_of_head(const std::string& head) {
  const auto fault = fault_in_head(head);
  return fault ? fault->status : 200;
}

std::string with_header(const std::string& lines) {
  return "GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lines + "\r\n";
}

TEST(HttpHead, PlainRequestsPass) {
  EXPECT_EQ(status_of_head("GET / HTTP/1.1\r\n\r\n"), 200);
  EXPECT_EQ(status_of_head(with_header("Content-Length: 2\r\nX-Empty:\r\nX-Utf8: gr\xc3\xb6\xc3\x9f\x65\r\n")), 200);
  EXPECT_EQ(status_of_head(with_header("Expect: 100-Continue\r\n")), 200);
}

TEST(HttpHead, WhatTwoReadersCouldReadDifferentlyIsRefused) {
  for (const char* lines :
       {"A : b\r\n", " folded: x\r\n", "A: b\r\n c\r\n", "A: b\nC: d\r\n", "A: b\rc\r\n", "no colon\r\n", ": x\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "Host: a\r\nHost: a\r\n", "Origin:  \r\n",
        "A: \x01\r\n", "A\xc3\xa4: b\r\n"})
    EXPECT_EQ(status_of_head(with_header(lines)), 400) << lines;
  EXPECT_EQ(status_of_head(with_header("Expect: 200-maybe\r\n")), 417);
  EXPECT_EQ(status_of_head("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(status_of_head("GET /a b HTTP/1.1\r\n\r\n"), 400);
}

TEST(HttpHead, IsBounded) {
  std::string many;
  for (size_t i = 0; i < kMostHeaders; ++i) many += "a:b\r\n";
  EXPECT_EQ(status_of_head(with_header(many)), 431);  // Host is one more
  EXPECT_EQ(status_of_head(with_header("A: " + std::string(kMostHeaderLineBytes, 'x') + "\r\n")), 431);
  EXPECT_EQ(status_of_head("GET /" + std::string(kMostTargetBytes, 'x') + " HTTP/1.1\r\n\r\n"), 414);
}

TEST(HttpHead, ItsEndIsFoundWhereverThePiecesEnd) {
  const std::string whole = with_header("A: b\r\n") + "body";
  const size_t end = whole.size() - 4;
  for (size_t size = 0; size <= whole.size(); ++size)
    EXPECT_EQ(end_of_head(whole.substr(0, size)), size < end ? std::string::npos : end) << size;
  EXPECT_EQ(end_of_head("GET / HTTP/1.1\nA: b\n\n"), 21U) << "refused at once, not waited for";
}

}  // namespace
}  // namespace lockstep
