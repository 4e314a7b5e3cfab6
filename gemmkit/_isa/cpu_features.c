/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu_features.h"
#include "target.h"
#include "ukr.h"

#include <unistd.h>
#ifdef GK_X86
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#endif

/* What a cache is taken for when nobody says: small enough to be true of any machine of the last ten years. */
static const gk_cache guess_l1d = {32 << 10, 8, 64, 1}, guess_l2 = {256 << 10, 8, 64, 1}, guess_l3 = {2 << 20, 16, 64, 1};

static void fill_guesses(gk_cpu *cpu)
{
    if (cpu->l1d.size <= 0)
        cpu->l1d = guess_l1d;
    if (cpu->l2.size <= 0)
        cpu->l2 = guess_l2;
    /* No L3 is a fact on some machines; the last level then is L2. */
    if (!cpu->caches_known && cpu->l3.size <= 0)
        cpu->l3 = guess_l3;
}

static int bit(uint32_t word, int n) { return (int)(word >> n & 1); }

void gk_cpu_decode_x86(gk_cpuid_fn cpuid, void *context, uint64_t xcr0, gk_cpu *cpu)
{
    uint32_t r[4], highest, highest_ext;
    memset(cpu, 0, sizeof *cpu);
    cpu->isa_mask = GK_ISA_SCALAR;

    cpuid(context, 0, 0, r);
    highest = r[0];
    memcpy(cpu->vendor, &r[1], 4);
    memcpy(cpu->vendor + 4, &r[3], 4);
    memcpy(cpu->vendor + 8, &r[2], 4);
    cpuid(context, 0x80000000u, 0, r);
    highest_ext = r[0];
    if (highest_ext >= 0x80000004u && highest_ext < 0x80010000u) {
        for (uint32_t i = 0; i < 3; i++) {
            cpuid(context, 0x80000002u + i, 0, r);
            memcpy(cpu->brand + 16 * i, r, 16);
        }
    }

    cpuid(context, 1, 0, r);
    cpu->family = (int)(r[0] >> 8 & 15);
    cpu->model = (int)(r[0] >> 4 & 15);
    if (cpu->family == 6 || cpu->family == 15)
        cpu->model |= (int)(r[0] >> 16 & 15) << 4;
    if (cpu->family == 15)
        cpu->family += (int)(r[0] >> 20 & 255);
    const int sse2 = bit(r[3], 26), fma = bit(r[2], 12), avx = bit(r[2], 28), osxsave = bit(r[2], 27), f16c = bit(r[2], 29);
    /* The instructions are there, but their registers are only kept over a context switch when XCR0 says so:
     * bits 1, 2 for ymm, 5, 6, 7 for mask registers and both halves of zmm, 17, 18 for tiles. */
    const int os_ymm = osxsave && (xcr0 & 0x06) == 0x06, os_zmm = os_ymm && (xcr0 & 0xe0) == 0xe0;
    const int os_tiles = os_zmm && (xcr0 & 0x60000) == 0x60000;
    memset(r, 0, sizeof r);
    if (highest >= 7)
        cpuid(context, 7, 0, r);
    const int avx2 = bit(r[1], 5), f = bit(r[1], 16), dq = bit(r[1], 17), bw = bit(r[1], 30), vl = bit(r[1], 31);
    const int fp16 = bit(r[3], 23), vbmi = bit(r[2], 1), vnni = bit(r[2], 11), amx = bit(r[3], 24);
    const int amx_bf16 = amx && bit(r[3], 22), amx_int8 = amx && bit(r[3], 25);
    const uint32_t subleaves = r[0];
    memset(r, 0, sizeof r);
    if (highest >= 7 && subleaves >= 1)
        cpuid(context, 7, 1, r);
    const int bf16 = bit(r[0], 5), avxvnni = bit(r[0], 4);
    if (sse2)
        cpu->isa_mask |= GK_ISA_SSE2;
    if (sse2 && avx && os_ymm)
        cpu->isa_mask |= GK_ISA_AVX;
    if ((cpu->isa_mask & GK_ISA_AVX) && avx2 && fma && f16c)
        cpu->isa_mask |= GK_ISA_AVX2;
    if ((cpu->isa_mask & GK_ISA_AVX2) && avxvnni)
        cpu->isa_mask |= GK_ISA_AVXVNNI;
    if ((cpu->isa_mask & GK_ISA_AVX2) && os_zmm && f && dq && bw && vl)
        cpu->isa_mask |= GK_ISA_AVX512;
    if ((cpu->isa_mask & GK_ISA_AVX512) && vnni)
        cpu->isa_mask |= GK_ISA_AVX512VNNI;
    if ((cpu->isa_mask & GK_ISA_AVX512) && vbmi)
        cpu->isa_mask |= GK_ISA_AVX512VBMI;
    if ((cpu->isa_mask & GK_ISA_AVX512) && bf16)
        cpu->isa_mask |= GK_ISA_AVX512BF16;
    if ((cpu->isa_mask & GK_ISA_AVX512) && fp16)
        cpu->isa_mask |= GK_ISA_AVX512FP16;
    if ((cpu->isa_mask & GK_ISA_AVX512) && os_tiles && amx_bf16)
        cpu->isa_mask |= GK_ISA_AMXBF16;
    if ((cpu->isa_mask & GK_ISA_AVX512) && os_tiles && amx_int8)
        cpu->isa_mask |= GK_ISA_AMXINT8;
    /* Intel's vdpbf16ps has a quarter of vfmadd231ps's rate (Sapphire Rapids: 65 against 137 GFLOP/s), AMD's the same. */
    if (!memcmp(cpu->vendor, "GenuineIntel", 12))
        cpu->slow_mask = GK_ISA_AVX512BF16;

    /* Deterministic cache parameters: leaf 4, or AMD's copy of it at 0x8000001D when topology extensions exist. */
    uint32_t leaf = 0;
    const int amd = !memcmp(cpu->vendor, "AuthenticAMD", 12) || !memcmp(cpu->vendor, "HygonGenuine", 12);
    if (amd && highest_ext >= 0x8000001du) {
        cpuid(context, 0x80000001u, 0, r);
        leaf = bit(r[2], 22) ? 0x8000001du : 0;
    } else if (!amd && highest >= 4) {
        leaf = 4;
    }
    for (uint32_t i = 0; leaf && i < 16; i++) {
        cpuid(context, leaf, i, r);
        const uint32_t type = r[0] & 31, level = r[0] >> 5 & 7;
        if (type == 0)
            break;
        if (type == 2) /* instructions */
            continue;
        gk_cache c;
        c.line = (int)((r[1] & 0xfff) + 1);
        c.ways = (int)((r[1] >> 22 & 0x3ff) + 1);
        c.sharing = (int)((r[0] >> 14 & 0xfff) + 1);
        c.size = (ptrdiff_t)c.line * c.ways * (ptrdiff_t)((r[1] >> 12 & 0x3ff) + 1) * ((ptrdiff_t)r[2] + 1);
        if (level == 1)
            cpu->l1d = c;
        else if (level == 2)
            cpu->l2 = c;
        else if (level == 3)
            cpu->l3 = c;
        cpu->caches_known = 1;
    }
    fill_guesses(cpu);
}

#ifdef GK_X86
static void this_cpuid(void *context, uint32_t leaf, uint32_t subleaf, uint32_t r[4])
{
    (void)context;
    __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
}

static uint64_t this_xcr0(void)
{
    uint32_t a, b, c, d, low, high;
    __cpuid(1, a, b, c, d);
    if (!bit(c, 27))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Linux gives a process its tile registers on request, once and for all its threads.  It refuses, as older kernels do,
 * when a thread has an alternative signal stack too small for them. */
static int tiles_permitted(void)
{
#if defined(__linux__)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return 0;
#endif
}
#else
static ptrdiff_t from_system(int name)
{
    const long x = sysconf(name);
    return x > 0 ? (ptrdiff_t)x : 0;
}
#endif

void gk_cpu_detect(gk_cpu *cpu)
{
#ifdef GK_X86
    gk_cpu_decode_x86(this_cpuid, NULL, this_xcr0(), cpu);
    const uint32_t tiles = GK_ISA_AMXBF16 | GK_ISA_AMXINT8;
    if ((cpu->isa_mask & tiles) && !tiles_permitted())
        cpu->isa_mask &= ~tiles;
#else
    memset(cpu, 0, sizeof *cpu);
    cpu->isa_mask = GK_ISA_SCALAR;
    memcpy(cpu->vendor, "unknown", 8);
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    cpu->l1d = (gk_cache){from_system(_SC_LEVEL1_DCACHE_SIZE), 8, 64, 1};
    cpu->l2 = (gk_cache){from_system(_SC_LEVEL2_CACHE_SIZE), 8, 64, 1};
    cpu->l3 = (gk_cache){from_system(_SC_LEVEL3_CACHE_SIZE), 16, 64, 1};
    cpu->caches_known = cpu->l1d.size > 0 && cpu->l2.size > 0;
#endif
    fill_guesses(cpu);
#endif
}
