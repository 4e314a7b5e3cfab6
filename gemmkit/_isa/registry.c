/* The kernel table put together from its units, when the library is loaded.  SPDX-License-Identifier: Apache-2.0 */
#include "ukr.h"

#include <stdlib.h>

extern const gk_tables gk_tables_base, gk_tables_avx512, gk_tables_more;
static const gk_tables *const units[] = {&gk_tables_base, &gk_tables_avx512, &gk_tables_more};
enum { UNITS = sizeof units / sizeof units[0], MOST = 1024 };

static gk_ukr rows[MOST];
static gk_pack packs[MOST];
static gk_epi epis[MOST];
static gk_soft softs[MOST];
static gk_peak peaks[MOST];
const gk_ukr *const gk_rows = rows;
const gk_pack *const gk_packs = packs;
const gk_epi *const gk_epis = epis;
const gk_soft *const gk_softs = softs;
const gk_peak *const gk_peaks = peaks;
int gk_num_rows, gk_num_packs, gk_num_epis, gk_num_softs, gk_num_peaks;

/* All units read one file, so line i is the same line in each; one of them has its functions. */
__attribute__((constructor)) static void put_together(void)
{
    const gk_tables *t = units[0];
    if (t->num_rows > MOST || t->num_packs > MOST || t->num_epis > MOST || t->num_softs > MOST || t->num_peaks > MOST)
        abort();
    gk_num_rows = (int)t->num_rows;
    gk_num_packs = (int)t->num_packs;
    gk_num_epis = (int)t->num_epis;
    gk_num_softs = (int)t->num_softs;
    gk_num_peaks = (int)t->num_peaks;
    for (int u = 0; u < UNITS; u++) {
        t = units[u];
        for (int i = 0; i < gk_num_rows; i++)
            if (t->rows[i].fn)
                rows[i] = t->rows[i];
        for (int i = 0; i < gk_num_packs; i++)
            if (t->packs[i].panels)
                packs[i] = t->packs[i];
        for (int i = 0; i < gk_num_epis; i++)
            if (t->epis[i].fn)
                epis[i] = t->epis[i];
        for (int i = 0; i < gk_num_softs; i++)
            if (t->softs[i].scan)
                softs[i] = t->softs[i];
        for (int i = 0; i < gk_num_peaks; i++)
            if (t->peaks[i].fn)
                peaks[i] = t->peaks[i];
    }
}
