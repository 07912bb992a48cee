// Whether a sanitizer watches this program: g++ says it by macros, clang by features.
#pragma once

#ifdef __has_feature
#define LOCKSTEP_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_SANITIZED 1
#else
#define LOCKSTEP_SANITIZED 0
#endif
