// Before a function: where the processor has wider registers than every one of its kind, the same code is compiled for
// those too, and chosen when the program starts. The sanitizers cannot follow such a choice.
#pragma once
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_FOR_WIDE_REGISTERS __attribute__((target_clones("arch=haswell", "default")))
#else
#define LOCKSTEP_FOR_WIDE_REGISTERS
#endif
