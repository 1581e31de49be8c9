/* A kernel that computes and communicates, with known balance.
 *
 *     kernel calibrate                              iterations of the loop per microsecond of CPU time
 *     kernel pingpong ROUNDS SIZE...                per size in bytes, in us: half of the median round-trip time; one way
 *                                                   when both send at once; medians of the processor's time to send, and
 *                                                   to receive what is there; what others had of the processor for each
 *                                                   message sent and received
 *     kernel PATTERN ROUNDS BYTES RATE US0 US1 ...  PATTERN: ring, pairs, alltoall, reduce
 *
 * A round computes for US microseconds (rank r for the r-th of them; RATE as calibrated) and communicates. Rounds
 * before the first traced one open the connections. Rank 0 prints the seconds that the slowest rank took, and the share of
 * its processor that the ranks of a host did not have: they poll, so others had it; of the host where that is most. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 5 };

static volatile double sink;

static void compute(double iterations)
{
    double x = 1.0;
    for (long i = 0; i < (long)iterations; i++)
        x = x * 0.999999 + 0.5;
    sink = x;
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static int calibrate(void)
{
    const double iterations = 2e8;
    compute(iterations / 10);
    double start = cpu_seconds();
    compute(iterations);
    printf("%.3f\n", iterations / (cpu_seconds() - start) / 1e6);
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int count)
{
    qsort(times, (size_t)count, sizeof *times, ascending);
    return times[count / 2];
}

static void pingpong(int rank, int count, char **arguments)
{
    int rounds = atoi(arguments[0]);
    double *times = malloc(sizeof *times * (size_t)rounds);
    for (int i = 1; i < count; i++) {
        int bytes = atoi(arguments[i]);
        char *data = calloc((size_t)bytes + 1, 1), *out = calloc((size_t)bytes + 1, 1);
        for (int round = -WARM_UP; round < rounds; round++) {
            double start = MPI_Wtime();
            if (rank == 0) {
                MPI_Send(data, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
                MPI_Recv(data, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else if (rank == 1) {
                MPI_Recv(data, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(data, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
            }
            if (round >= 0)
                times[round] = MPI_Wtime() - start;
        }
        double one_way = median(times, rounds) / 2, costs[3] = {0}, others = 0;
        /* Both send after a pause. What one waits less because the other was early, the other waits longer. A rank never
         * sleeps here, so what it does not have of its processor others have. */
        for (int round = -WARM_UP; round < rounds; round++) {
            MPI_Request requests[2];
            double start = MPI_Wtime();
            if (round == 0)
                others = start - cpu_seconds();
            while (MPI_Wtime() < start + one_way)
                ;
            start = MPI_Wtime();
            MPI_Irecv(data, bytes, MPI_CHAR, 1 - rank, 3, MPI_COMM_WORLD, &requests[0]);
            MPI_Isend(out, bytes, MPI_CHAR, 1 - rank, 3, MPI_COMM_WORLD, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            if (round >= 0)
                times[round] = (MPI_Wtime() - start) / 2;
        }
        costs[2] = (MPI_Wtime() - cpu_seconds() - others) / rounds / 2;
        MPI_Allreduce(MPI_IN_PLACE, times, rounds, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        double exchange = median(times, rounds);
        for (int round = 0; round < rounds; round++) {
            double start = MPI_Wtime();
            /* The message is there. */
            while (rank == 1 && MPI_Wtime() < start + 2 * one_way + 1e-3)
                ;
            start = cpu_seconds();
            if (rank == 0)
                MPI_Send(data, bytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD);
            else if (rank == 1)
                MPI_Recv(data, bytes, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            times[round] = cpu_seconds() - start;
            MPI_Barrier(MPI_COMM_WORLD);
        }
        costs[rank != 0] = median(times, rounds);
        MPI_Allreduce(MPI_IN_PLACE, costs, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0)
            printf("%d %.3f %.3f %.3f %.3f %.3f\n", bytes, one_way * 1e6, exchange * 1e6, costs[0] * 1e6, costs[1] * 1e6,
                   costs[2] * 1e6);
        free(data);
        free(out);
    }
    free(times);
}

struct kernel {
    char pattern;
    int rank, size, bytes;
    double iterations;
    char *out, *in;
};

static void communicate(const struct kernel *k)
{
    int after = (k->rank + 1) % k->size, before = (k->rank + k->size - 1) % k->size;
    MPI_Request requests[2];
    switch (k->pattern) {
    case 'r': /* ring */
        MPI_Sendrecv(k->out, k->bytes, MPI_CHAR, after, 1, k->in, k->bytes, MPI_CHAR, before, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        break;
    case 'p': /* pairs: both neighbors, without waiting in between */
        MPI_Irecv(k->in, k->bytes, MPI_CHAR, before, 2, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(k->out, k->bytes, MPI_CHAR, after, 2, MPI_COMM_WORLD, &requests[1]);
        compute(k->iterations / 4);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        break;
    case 'a': /* alltoall */
        MPI_Alltoall(k->out, k->bytes, MPI_CHAR, k->in, k->bytes, MPI_CHAR, MPI_COMM_WORLD);
        break;
    default: /* a sum for everyone */
        MPI_Allreduce(k->out, k->in, k->bytes / (int)sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "calibrate") == 0)
        return calibrate();
    struct kernel k = {.pattern = 0};
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &k.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &k.size);
    if (count > 3 && strcmp(arguments[1], "pingpong") == 0) {
        pingpong(k.rank, count - 2, arguments + 2);
    } else if (count == 5 + k.size) {
        k.pattern = arguments[1][0];
        int rounds = atoi(arguments[2]);
        k.bytes = atoi(arguments[3]);
        k.iterations = atof(arguments[4]) * atof(arguments[5 + k.rank]);
        k.out = calloc((size_t)k.bytes * (size_t)k.size + 8, 1);
        k.in = calloc((size_t)k.bytes * (size_t)k.size + 8, 1);
        MPI_Pcontrol(0);
        for (int round = 0; round < WARM_UP; round++)
            communicate(&k);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Pcontrol(1);
        double start = MPI_Wtime(), cpu = cpu_seconds();
        for (int round = 0; round < rounds; round++) {
            compute(k.iterations);
            communicate(&k);
        }
        double seconds = MPI_Wtime() - start, slowest, others, most;
        cpu = cpu_seconds() - cpu;
        MPI_Pcontrol(0);
        MPI_Comm host;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
        MPI_Allreduce(&cpu, &others, 1, MPI_DOUBLE, MPI_SUM, host);
        MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, host);
        others = 1 - others / slowest;
        MPI_Reduce(&others, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        MPI_Comm_free(&host);
        MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (k.rank == 0)
            printf("%.6f %.4f\n", slowest, most);
    } else if (k.rank == 0) {
        fprintf(stderr, "kernel: see its source for the arguments\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Finalize();
    return 0;
}
