/* EP of the NAS Parallel Benchmarks: pairs of normal deviates, written from its specification (Bailey et al., "The NAS
 * Parallel Benchmarks", RNR-94-007, section 2.3.1) with its verification values; classes S, W and A, and a short class T
 * without published values, for sweeps. Not the benchmark's own code.
 *
 *     mpicc -O2 -o npb-ep npb-ep.c -lm
 *     perturb run --mpi --hosts 4 PROFILE -- ./npb-ep S
 *
 * All computation but a few sums at the end: it must not respond to the network. Prints one JSON object; exits with 1 if
 * the sums are not the published ones.
 */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct problem {
    char name;
    int pairs_log;
    double x, y;
};

static const struct problem PROBLEMS[] = {
    {'T', 20, 0, 0},
    {'S', 24, -3.247834652034740e3, -6.958407078382297e3},
    {'W', 25, -2.863319731645753e3, -6.320053679109499e3},
    {'A', 28, -4.295875165629892e3, -1.580732573678431e4},
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
    if (!problem) {
        if (self == 0)
            fprintf(stderr, "usage: npb-ep T|S|W|A\n");
        MPI_Finalize();
        return 2;
    }
    const uint64_t pairs = UINT64_C(1) << problem->pairs_log, a = 1220703125;
    const uint64_t first = pairs * self / size, last = pairs * (self + 1) / size;

    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime(), mine[2] = {0, 0}, sum[2];
    double rings[10] = {0}, total[10];
    uint64_t seed = times(271828183, power(a, 2 * first));
    for (uint64_t pair = first; pair < last; pair++) {
        seed = times(a, seed);
        const double x = 2 * (seed * 0x1p-46) - 1;
        seed = times(a, seed);
        const double y = 2 * (seed * 0x1p-46) - 1;
        const double square = x * x + y * y;
        if (square > 1)
            continue;
        const double factor = sqrt(-2 * log(square) / square), gauss_x = x * factor, gauss_y = y * factor;
        const int ring = (int)fmax(fabs(gauss_x), fabs(gauss_y));
        if (ring < 10)
            rings[ring]++;
        mine[0] += gauss_x;
        mine[1] += gauss_y;
    }
    MPI_Allreduce(mine, sum, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(rings, total, 10, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    seconds = MPI_Wtime() - seconds;

    const int published = problem->x != 0;
    const int verified = !published || (fabs((sum[0] - problem->x) / problem->x) <= 1e-8 &&
                                        fabs((sum[1] - problem->y) / problem->y) <= 1e-8);
    if (self == 0)
        printf("{\"kernel\": \"EP\", \"class\": \"%c\", \"run_time_s\": %.6f, \"verified\": %s}\n", problem->name, seconds,
               !published ? "null" : verified ? "true" : "false");
    MPI_Finalize();
    return verified ? 0 : 1;
}
