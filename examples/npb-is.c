/* IS of the NAS Parallel Benchmarks: integer sort, written from its specification (Bailey et al., "The NAS Parallel
 * Benchmarks", RNR-94-007, section 2.3.6) with its verification values; classes S, W and A. Not the benchmark's own code.
 *
 *     mpicc -O2 -o npb-is npb-is.c
 *     perturb run --mpi --hosts 4 PROFILE -- ./npb-is S
 *
 * Each of 10 iterations ranks all keys: a histogram of buckets is summed over all processes, the keys go all to all to
 * whom their bucket belongs, and five ranks are compared with the published ones. Prints one JSON object; exits with 1 if
 * a rank is wrong or a key is lost.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS = 10, TESTS = 5, BUCKETS = 1024 };

struct problem {
    char name;
    int keys_log, range_log;
    int index[TESTS];
    long rank[TESTS];
};

static const struct problem PROBLEMS[] = {
    {'S', 16, 11, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}},
    {'W', 20, 16, {357773, 934767, 875723, 898999, 404505}, {1249, 11698, 1039987, 1043896, 1048018}},
    {'A', 23, 19, {2112377, 662041, 5336171, 3642833, 4250760}, {104, 17523, 123928, 8288932, 8388264}},
};

/* x[k+1] = a x[k] mod 2^46, the generator of the specification. */
static const uint64_t MASK = (UINT64_C(1) << 46) - 1;

static uint64_t times(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b & MASK);
}

static uint64_t power(uint64_t a, uint64_t n)
{
    uint64_t result = 1;
    for (; n; n >>= 1, a = times(a, a))
        if (n & 1)
            result = times(result, a);
    return result;
}

static void *room(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fprintf(stderr, "npb-is: no memory for %zu times %zu bytes\n", count, size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

/* What the published rank is expected to be in an iteration. */
static long expected(const struct problem *problem, int test, int iteration)
{
    long rank = problem->rank[test];
    switch (problem->name) {
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
    int self, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    const struct problem *problem = NULL;
    for (size_t i = 0; i < sizeof PROBLEMS / sizeof *PROBLEMS; i++)
        if (argc == 2 && strlen(argv[1]) == 1 && argv[1][0] == PROBLEMS[i].name)
            problem = &PROBLEMS[i];
    if (!problem || (1 << problem->keys_log) % size) {
        if (self == 0)
            fprintf(stderr, "usage: npb-is S|W|A, with a number of processes that divides the keys\n");
        MPI_Finalize();
        return 2;
    }
    const int own = (1 << problem->keys_log) / size, range = 1 << problem->range_log;
    int shift = 0;
    while (range >> shift > BUCKETS)
        shift++;
    const int buckets = range >> shift;

    int *keys = room(own, sizeof *keys), *sorted = room(own, sizeof *sorted), *received = NULL;
    uint64_t a = 1220703125, x = times(314159265, power(a, (uint64_t)4 * own * self));
    for (int i = 0; i < own; i++) {
        double sum = 0;
        for (int part = 0; part < 4; part++) {
            x = times(a, x);
            sum += x * 0x1p-46;
        }
        keys[i] = (int)(range / 4 * sum);
    }

    int *count = room(buckets, sizeof *count), *total = room(buckets, sizeof *total);
    int *owner = room(buckets, sizeof *owner), *place = room(buckets, sizeof *place);
    int *sends = room(size, sizeof *sends), *receives = room(size, sizeof *receives);
    int *send_at = room(size, sizeof *send_at), *receive_at = room(size, sizeof *receive_at);
    long wrong = 0;
    int held = 0;
    double seconds = 0;
    /* Iteration 0 is not timed, as in the benchmark. */
    for (int iteration = 0; iteration <= ITERATIONS; iteration++) {
        const int round = iteration ? iteration : 1;
        if (iteration <= 1) {
            MPI_Barrier(MPI_COMM_WORLD);
            seconds = MPI_Wtime();
        }
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
        received = room(held, sizeof *received);
        MPI_Alltoallv(sorted, sends, send_at, MPI_INT, received, receives, receive_at, MPI_INT, MPI_COMM_WORLD);

        long *rank = room(range, sizeof *rank);
        for (int i = 0; i < held; i++)
            rank[received[i]]++;
        long below = first;
        for (int key = 0; key < range; key++) {
            const long here = rank[key];
            rank[key] = below;
            below += here;
        }
        for (int test = 0; test < TESTS; test++)
            if (owner[tested[test] >> shift] == self && rank[tested[test]] != expected(problem, test, round))
                wrong++;
        free(rank);
    }
    seconds = MPI_Wtime() - seconds;

    long all_wrong, all_held, mine_held = held;
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&mine_held, &all_held, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    const int verified = all_wrong == 0 && all_held == 1L << problem->keys_log;
    if (self == 0)
        printf("{\"kernel\": \"IS\", \"class\": \"%c\", \"run_time_s\": %.6f, \"verified\": %s}\n", problem->name, seconds,
               verified ? "true" : "false");
    MPI_Finalize();
    return verified ? 0 : 1;
}
