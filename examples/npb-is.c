/* IS, NPB-derived: integer sort (RNR-94-007, section 2.3.6); classes S, W and A.
 *
 *     mpicc -O2 -o npb-is npb-is.c -lm
 *     perturb run --mpi --hosts 4 PROFILE -- ./npb-is S
 *
 * Each of 10 iterations ranks all keys: a histogram of buckets is summed over all processes, the keys go all to all to
 * whom their bucket belongs, and five ranks are compared with the published ones; no key may be lost. */
#include "npb.h"

enum { ITERATIONS = 10, TESTS = 5, BUCKETS = 1024 };

static const struct problem {
    int keys_log, range_log;
    int index[TESTS];
    long rank[TESTS];
} PROBLEMS[] = {
    {16, 11, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}},                        /* S */
    {20, 16, {357773, 934767, 875723, 898999, 404505}, {1249, 11698, 1039987, 1043896, 1048018}},    /* W */
    {23, 19, {2112377, 662041, 5336171, 3642833, 4250760}, {104, 17523, 123928, 8288932, 8388264}}, /* A */
};

/* What the published rank is expected to be in an iteration. */
static long expected(char class, long rank, int test, int iteration)
{
    switch (class) {
    case 'S':
        return test <= 2 ? rank + iteration : rank - iteration;
    case 'W':
        return test < 2 ? rank + iteration - 2 : rank - iteration;
    default:
        return test <= 2 ? rank + iteration - 1 : rank - iteration + 1;
    }
}

int main(int argc, char **argv)
{
    struct npb run = npb_begin(&argc, &argv, "IS", "SWA");
    const struct problem *problem = &PROBLEMS[run.index];
    const int self = run.self, size = run.size;
    npb_demand(&run, (1 << problem->keys_log) % size == 0, "divide that of the keys");
    const int own = (1 << problem->keys_log) / size, range = 1 << problem->range_log;
    int shift = 0;
    while (range >> shift > BUCKETS)
        shift++;
    const int buckets = range >> shift;

    int *keys = npb_room(own, sizeof *keys), *sorted = npb_room(own, sizeof *sorted), *received = NULL;
    uint64_t seed = npb_skip(NPB_SEED, (uint64_t)4 * own * self);
    for (int i = 0; i < own; i++) {
        double sum = 0;
        for (int part = 0; part < 4; part++)
            sum += npb_random(&seed);
        keys[i] = (int)(range / 4 * sum);
    }

    int *count = npb_room(buckets, sizeof *count), *total = npb_room(buckets, sizeof *total);
    int *owner = npb_room(buckets, sizeof *owner), *place = npb_room(buckets, sizeof *place);
    int *sends = npb_room(size, sizeof *sends), *receives = npb_room(size, sizeof *receives);
    int *send_at = npb_room(size, sizeof *send_at), *receive_at = npb_room(size, sizeof *receive_at);
    long wrong = 0;
    int held = 0;
    /* Iteration 0 is not timed, as in the benchmark. */
    for (int iteration = 0; iteration <= ITERATIONS; iteration++) {
        const int round = iteration ? iteration : 1;
        if (iteration == 1)
            npb_start(&run);
        if (self == 0) {
            keys[round] = round;
            keys[round + ITERATIONS] = range - round;
        }
        int tested[TESTS], mine[TESTS];
        for (int test = 0; test < TESTS; test++) {
            const int at = problem->index[test];
            mine[test] = at / own == self ? keys[at % own] : 0;
        }
        MPI_Allreduce(mine, tested, TESTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);

        memset(count, 0, buckets * sizeof *count);
        for (int i = 0; i < own; i++)
            count[keys[i] >> shift]++;
        MPI_Allreduce(count, total, buckets, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        /* Buckets in order, so that each process gets about the same number of keys. */
        long before = 0, first = 0;
        memset(sends, 0, size * sizeof *sends);
        for (int bucket = 0; bucket < buckets; bucket++) {
            int process = (int)(before / own);
            owner[bucket] = process < size ? process : size - 1;
            if (owner[bucket] < self)
                first += total[bucket];
            sends[owner[bucket]] += count[bucket];
            before += total[bucket];
        }
        place[0] = 0;
        for (int bucket = 1; bucket < buckets; bucket++)
            place[bucket] = place[bucket - 1] + count[bucket - 1];
        for (int i = 0; i < own; i++)
            sorted[place[keys[i] >> shift]++] = keys[i];
        MPI_Alltoall(sends, 1, MPI_INT, receives, 1, MPI_INT, MPI_COMM_WORLD);
        held = 0;
        for (int process = 0, sent = 0; process < size; process++) {
            send_at[process] = sent;
            sent += sends[process];
            receive_at[process] = held;
            held += receives[process];
        }
        free(received);
        received = npb_room(held, sizeof *received);
        MPI_Alltoallv(sorted, sends, send_at, MPI_INT, received, receives, receive_at, MPI_INT, MPI_COMM_WORLD);

        long *rank = npb_room(range, sizeof *rank);
        for (int i = 0; i < held; i++)
            rank[received[i]]++;
        long below = first;
        for (int key = 0; key < range; key++) {
            const long here = rank[key];
            rank[key] = below;
            below += here;
        }
        for (int test = 0; test < TESTS; test++)
            if (owner[tested[test] >> shift] == self)
                wrong += rank[tested[test]] != expected(run.class, problem->rank[test], test, round);
        free(rank);
    }
    npb_stop(&run);

    long all_wrong, all_held, mine_held = held;
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&mine_held, &all_held, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    npb_check(&run, all_wrong == 0, "ranks are not the published ones");
    npb_check(&run, all_held == 1L << problem->keys_log, "keys are lost");
    return npb_end(&run);
}
