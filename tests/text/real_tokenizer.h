// The real Qwen2.5 tokenizer, which is not ours to ship: tests that need it skip, saying so, when it is absent.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>

#include "text/tokenizer.h"

namespace lockstep {

inline fs::path real_tokenizer_folder() {
  const char* data = std::getenv("LOCKSTEP_TEST_DATA");
  const fs::path root = data != nullptr ? fs::path(data) : fs::path(LOCKSTEP_SOURCE_DIR) / ".." / "shared" / "data";
  return root / "qwen2.5-tokenizer";
}

inline const Tokenizer& real_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(real_tokenizer_folder());
  return tokenizer;
}

}  // namespace lockstep

#define LOCKSTEP_REAL_TOKENIZER(name)                                                         \
  if (!lockstep::fs::exists(lockstep::real_tokenizer_folder() / "tokenizer.json"))            \
    GTEST_SKIP() << "no " << lockstep::real_tokenizer_folder() << "; set LOCKSTEP_TEST_DATA"; \
  const lockstep::Tokenizer& name = lockstep::real_tokenizer()
