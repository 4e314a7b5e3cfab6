/* Workspace for packed panels and partial sums: a few buffers that calls borrow and give back.
 *
 * A fresh allocation of megabytes costs page faults that take longer than packing into it, so freed buffers wait in
 * slots for the next call.  Slots belong to the process, not to threads: a dead thread leaves nothing behind.  They are
 * bounded in number and size, and each is taken with one atomic exchange, so no lock can be held over a fork.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_WORKSPACE_H
#define GK_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { GK_WORKSPACE_SLOTS = 8 };
#define GK_WORKSPACE_KEEP ((size_t)32 << 20) /* a larger buffer is freed at once: 8 x 32 MiB bound what is kept */
#define GK_WORKSPACE_ALIGN 4096 /* panels start on a page, so a line is never split */

static void *gk_workspace_slots[GK_WORKSPACE_SLOTS];

/* The usable size stands in the page before the buffer. */
static inline size_t gk_workspace_size(const void *p) { return ((const size_t *)((const char *)p - GK_WORKSPACE_ALIGN))[0]; }
static inline void gk_workspace_free(void *p) { free((char *)p - GK_WORKSPACE_ALIGN); }

/* A buffer of at least `bytes`, or NULL when memory is out. */
static inline void *gk_workspace_take(size_t bytes)
{
    for (int i = 0; i < GK_WORKSPACE_SLOTS; i++) {
        void *p = __atomic_exchange_n(&gk_workspace_slots[i], NULL, __ATOMIC_ACQ_REL);
        if (!p)
            continue;
        if (gk_workspace_size(p) >= bytes)
            return p;
        /* Too small: it goes back, or away if another call has filled the slot meanwhile. */
        void *expected = NULL;
        if (!__atomic_compare_exchange_n(&gk_workspace_slots[i], &expected, p, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            gk_workspace_free(p);
    }
    bytes = (bytes + GK_WORKSPACE_ALIGN - 1) / GK_WORKSPACE_ALIGN * GK_WORKSPACE_ALIGN;
    void *p = NULL;
    if (posix_memalign(&p, GK_WORKSPACE_ALIGN, bytes + GK_WORKSPACE_ALIGN))
        return NULL;
    *(size_t *)p = bytes;
    return (char *)p + GK_WORKSPACE_ALIGN;
}

/* Gives a buffer back.  It takes an empty slot, else the place of a smaller one: the largest stay. */
static inline void gk_workspace_give(void *p)
{
    if (!p)
        return;
    if (gk_workspace_size(p) <= GK_WORKSPACE_KEEP) {
        for (int i = 0; i < GK_WORKSPACE_SLOTS; i++) {
            void *expected = NULL;
            if (__atomic_compare_exchange_n(&gk_workspace_slots[i], &expected, p, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
                return;
        }
        for (int i = 0; p && i < GK_WORKSPACE_SLOTS; i++) {
            void *old = __atomic_exchange_n(&gk_workspace_slots[i], p, __ATOMIC_ACQ_REL);
            if (!old || gk_workspace_size(old) < gk_workspace_size(p)) {
                p = old;
                break;
            }
            p = old;
        }
    }
    if (p)
        gk_workspace_free(p);
}

/* Bytes that wait in slots; approximate while calls run. */
static inline size_t gk_workspace_kept(void)
{
    size_t sum = 0;
    for (int i = 0; i < GK_WORKSPACE_SLOTS; i++) {
        void *p = __atomic_exchange_n(&gk_workspace_slots[i], NULL, __ATOMIC_ACQ_REL);
        if (p) {
            sum += gk_workspace_size(p);
            gk_workspace_give(p);
        }
    }
    return sum;
}

static inline void gk_workspace_trim(void)
{
    for (int i = 0; i < GK_WORKSPACE_SLOTS; i++) {
        void *p = __atomic_exchange_n(&gk_workspace_slots[i], NULL, __ATOMIC_ACQ_REL);
        if (p)
            gk_workspace_free(p);
    }
}

#endif
