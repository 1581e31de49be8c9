/* What the NPB-derived kernels share: the specification's pseudo-random numbers, arguments, timing, verification and
 * output. The kernels are written from the public specification (Bailey et al., "The NAS Parallel Benchmarks",
 * RNR-94-007, and "The NAS Parallel Benchmarks 2.0", NAS-95-020) with its verification values; they are not the
 * benchmarks' own code, and their results are not results of the NAS Parallel Benchmarks.
 *
 * A kernel takes one argument, its class, prints one JSON object, and exits with 0 if its result is the published one
 * (or there is none for the class), 1 if it is not, 2 if it was called wrongly. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- x[k+1] = a x[k] mod 2^46; x / 2^46 is uniform in (0, 1) ---- */

static const uint64_t NPB_A = 1220703125 /* 5^13 */, NPB_SEED = 314159265;

static inline uint64_t npb_times(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b & ((UINT64_C(1) << 46) - 1));
}

/* The seed from which the n-th next number follows. */
static inline uint64_t npb_skip(uint64_t seed, uint64_t n)
{
    for (uint64_t power = NPB_A; n; n >>= 1, power = npb_times(power, power))
        if (n & 1)
            seed = npb_times(seed, power);
    return seed;
}

static inline double npb_random(uint64_t *seed)
{
    *seed = npb_times(NPB_A, *seed);
    return *seed * 0x1p-46;
}

/* ---- a run ---- */

struct npb {
    const char *kernel;
    char class;
    int index; /* of the class among the kernel's */
    int self, size;
    int published, wrong;
    double seconds;
};

static inline void npb_leave(const struct npb *run, const char *what, const char *say)
{
    if (run->self == 0)
        fprintf(stderr, "%s: %s%s\n", run->kernel, what, say);
    MPI_Finalize();
    exit(2);
}

/* `classes` has one letter for each class. */
static inline struct npb npb_begin(int *argc, char ***argv, const char *kernel, const char *classes)
{
    struct npb run = {.kernel = kernel};
    MPI_Init(argc, argv);
    /* Traces have what is timed. */
    MPI_Pcontrol(0);
    MPI_Comm_rank(MPI_COMM_WORLD, &run.self);
    MPI_Comm_size(MPI_COMM_WORLD, &run.size);
    const char *given = *argc == 2 && strlen((*argv)[1]) == 1 ? strchr(classes, (*argv)[1][0]) : NULL;
    if (!given)
        npb_leave(&run, "give one argument, the class, one letter of ", classes);
    run.class = *given;
    run.index = (int)(given - classes);
    return run;
}

/* What the kernel demands of the number of processes. */
static inline void npb_demand(const struct npb *run, int holds, const char *demand)
{
    if (!holds)
        npb_leave(run, "cannot use so many processes; the number must ", demand);
}

static inline int npb_is_power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* Room for so many things of a size, all zero. */
static inline void *npb_room(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fprintf(stderr, "npb: no memory for %zu times %zu bytes\n", count, size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static inline void npb_start(struct npb *run)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Pcontrol(1);
    run->seconds = MPI_Wtime();
}

static inline void npb_stop(struct npb *run)
{
    run->seconds = MPI_Wtime() - run->seconds;
    MPI_Pcontrol(0);
}

static inline void npb_check(struct npb *run, int holds, const char *complaint)
{
    run->published = 1;
    run->wrong |= !holds;
    if (!holds && run->self == 0)
        fprintf(stderr, "%s: class %c: %s\n", run->kernel, run->class, complaint);
}

/* Compares with a published value; the tolerance is relative. */
static inline void npb_verify(struct npb *run, const char *what, double value, double expected, double tolerance)
{
    char complaint[128];
    snprintf(complaint, sizeof complaint, "%s is %.13e, published is %.13e", what, value, expected);
    npb_check(run, fabs((value - expected) / expected) <= tolerance, complaint);
}

/* The exit code. */
static inline int npb_end(const struct npb *run)
{
    const char *verified = !run->published ? "null" : run->wrong ? "false" : "true";
    if (run->self == 0)
        printf("{\"kernel\": \"%s\", \"class\": \"%c\", \"processes\": %d, \"run_time_s\": %.6f, \"verified\": %s}\n",
               run->kernel, run->class, run->size, run->seconds, verified);
    MPI_Finalize();
    return run->wrong;
}
