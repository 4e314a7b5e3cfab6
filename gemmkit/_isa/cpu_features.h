/* What the processor is and what the operating system lets us use of it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_CPU_FEATURES_H
#define GK_CPU_FEATURES_H

#include <stddef.h>
#include <stdint.h>

typedef struct gk_cache {
    ptrdiff_t size; /* bytes; 0: there is none */
    int ways, line, sharing; /* associativity, bytes a line, logical processors that share it */
} gk_cache;

typedef struct gk_cpu {
    uint32_t isa_mask; /* GK_ISA_* */
    uint32_t slow_mask; /* those whose rows weaker sets outrun here: used only when forced */
    char vendor[16], brand[52];
    int family, model;
    gk_cache l1d, l2, l3;
    int caches_known; /* 0: the sizes are guesses */
} gk_cpu;

/* Where CPUID's answers come from: the processor, or a test's table.  regs = eax, ebx, ecx, edx. */
typedef void (*gk_cpuid_fn)(void *context, uint32_t leaf, uint32_t subleaf, uint32_t regs[4]);

/* Decodes x86 CPUID answers and XCR0.  Pure but for the calls of `cpuid`: tests feed it other machines. */
void gk_cpu_decode_x86(gk_cpuid_fn cpuid, void *context, uint64_t xcr0, gk_cpu *cpu);

/* This machine. */
void gk_cpu_detect(gk_cpu *cpu);

#endif
