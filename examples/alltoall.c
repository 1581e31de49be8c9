/* Alltoall_A and Alltoall_B of PlogPT (Nomura, Matsuba and Ishikawa, CLUSTER 2007, fig. 13), and MPI_Alltoall.
 *
 *   mpicc -O2 -o alltoall examples/alltoall.c
 *   perturb run --mpi configs/plogpt-2007.yaml --hosts 8 -- ./alltoall b 65536 20
 *
 * Arguments: a, b or mpi; bytes per message; rounds. Rank 0 prints the time of each round in ms: from a barrier to
 * the last rank's end. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void exchange(int wait_for_receive, int rank, int ranks, int bytes, char *out, char *in)
{
    MPI_Request *receives = calloc(ranks, sizeof *receives), send;
    int steps = 1;
    while (steps < ranks)
        steps *= 2;
    for (int step = 0; step < ranks; step++)
        receives[step] = MPI_REQUEST_NULL;
    if (!wait_for_receive)
        for (int step = 1; step < steps; step++)
            if ((rank ^ step) < ranks)
                MPI_Irecv(in + (size_t)(rank ^ step) * bytes, bytes, MPI_BYTE, rank ^ step, 0, MPI_COMM_WORLD,
                          &receives[rank ^ step]);
    for (int step = 1; step < steps; step++) {
        int partner = rank ^ step;
        if (partner >= ranks)
            continue;
        if (wait_for_receive)
            MPI_Irecv(in + (size_t)partner * bytes, bytes, MPI_BYTE, partner, 0, MPI_COMM_WORLD, &receives[partner]);
        MPI_Isend(out + (size_t)partner * bytes, bytes, MPI_BYTE, partner, 0, MPI_COMM_WORLD, &send);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        if (wait_for_receive)
            MPI_Wait(&receives[partner], MPI_STATUS_IGNORE);
    }
    MPI_Waitall(ranks, receives, MPI_STATUSES_IGNORE);
    free(receives);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *algorithm = argc > 1 ? argv[1] : "b";
    int bytes = argc > 2 ? atoi(argv[2]) : 65536, rounds = argc > 3 ? atoi(argv[3]) : 10;
    if (bytes < 1 || rounds < 1 || (strcmp(algorithm, "a") && strcmp(algorithm, "b") && strcmp(algorithm, "mpi"))) {
        if (rank == 0)
            fprintf(stderr, "usage: %s a|b|mpi BYTES ROUNDS\n", argv[0]);
        MPI_Finalize();
        return 2;
    }
    char *out = malloc((size_t)ranks * bytes), *in = malloc((size_t)ranks * bytes);
    if (!out || !in)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(out, rank + 1, (size_t)ranks * bytes);
    for (int round = -1; round < rounds; round++) { /* the first one opens the connections */
        memset(in, 0, (size_t)ranks * bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        double took, start = MPI_Wtime();
        if (!strcmp(algorithm, "mpi"))
            MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
        else
            exchange(algorithm[0] == 'a', rank, ranks, bytes, out, in);
        took = MPI_Wtime() - start;
        for (int from = 0; from < ranks; from++) /* what arrived is what was sent */
            if (strcmp(algorithm, "mpi") && from == rank)
                continue;
            else if (in[(size_t)from * bytes] != from + 1 || in[(size_t)from * bytes + bytes - 1] != from + 1)
                MPI_Abort(MPI_COMM_WORLD, 1);
        double longest;
        MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0 && round >= 0)
            printf("%.3f\n", longest * 1e3);
    }
    MPI_Finalize();
    return 0;
}
