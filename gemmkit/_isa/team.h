/* Whether the system will give this thread a team of workers.
 *
 * libgomp ends the whole process when pthread_create fails, so the first time that a thread asks for a team larger than
 * any before, it first creates that many threads itself, all alive at once, and takes what it can get.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_TEAM_H
#define GK_TEAM_H

#include <pthread.h>

enum { GK_TEAM_MOST = 1024 };

typedef struct gk_team_gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    int open;
} gk_team_gate;

static void *gk_team_wait(void *arg)
{
    gk_team_gate *g = (gk_team_gate *)arg;
    pthread_mutex_lock(&g->lock);
    while (!g->open)
        pthread_cond_wait(&g->opened, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* The size of the team that libgomp keeps for this thread.  It dismisses the threads that a region does without. */
static __thread int gk_team_granted = 1;

/* The largest team size up to `wanted` that this thread may have; 1 means the caller alone, and no region then. */
static inline int gk_team_grant(int wanted)
{
    if (wanted <= gk_team_granted) {
        if (wanted > 1)
            gk_team_granted = wanted;
        return wanted;
    }
    if (wanted > GK_TEAM_MOST)
        wanted = GK_TEAM_MOST;
    gk_team_gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    pthread_t *threads = (pthread_t *)malloc((size_t)wanted * sizeof *threads);
    int made = 0;
    if (threads) {
        while (made < wanted - 1 && !pthread_create(&threads[made], NULL, gk_team_wait, &gate))
            made++;
        pthread_mutex_lock(&gate.lock);
        gate.open = 1;
        pthread_cond_broadcast(&gate.opened);
        pthread_mutex_unlock(&gate.lock);
        for (int i = 0; i < made; i++)
            pthread_join(threads[i], NULL);
        free(threads);
    }
    /* A team that can't grow may still be kept as it is. */
    wanted = made + 1 > gk_team_granted ? made + 1 : gk_team_granted;
    if (wanted > 1)
        gk_team_granted = wanted;
    return wanted;
}

/* After a fork only the forking thread exists, and its team is gone. */
static inline void gk_team_forget(void) { gk_team_granted = 1; }

#endif
