#ifndef EDIT_CORE_WIDTH_H
#define EDIT_CORE_WIDTH_H

/* How a loop of core is compiled for two widths of vector registers in one object file: the loop is an INLINE function, and a
 * WIDE function calls it to have it compiled once more. Reads only the CPU model that libgcc's start-up code has found. */

#include "core/base.h"

#define INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) && !defined(EDIT_NARROW)
#define WIDE __attribute__((target("avx2"), noinline))
/* Whether WIDE functions may be called on this machine. */
#define machine_is_wide() (__builtin_cpu_supports("avx2") != 0)
#else
#define WIDE
#define machine_is_wide() false
#endif

#endif
