/* One-way times of messages between ranks 0 and 1, in us: half of the median round trip, over sizes up to 2 MiB. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 15, WARM_UP = 3 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **arguments)
{
    static const int SIZES[] = {0, 1024, 4096, 16384, 65536, 262144, 1048576, 2097152};
    int rank;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *data = calloc(1, 2097152);
    for (unsigned i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        double times[ROUNDS];
        for (int round = -WARM_UP; round < ROUNDS; round++) {
            double start = MPI_Wtime();
            if (rank == 0) {
                MPI_Send(data, SIZES[i], MPI_CHAR, 1, 1, MPI_COMM_WORLD);
                MPI_Recv(data, SIZES[i], MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(data, SIZES[i], MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(data, SIZES[i], MPI_CHAR, 0, 1, MPI_COMM_WORLD);
            }
            if (round >= 0)
                times[round] = MPI_Wtime() - start;
        }
        qsort(times, ROUNDS, sizeof *times, ascending);
        if (rank == 0)
            printf("%d %.3f\n", SIZES[i], times[ROUNDS / 2] / 2 * 1e6);
    }
    free(data);
    MPI_Finalize();
    return 0;
}
