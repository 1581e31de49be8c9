/* Rank 0 computes without a call until FILE is there, or for SECONDS; 1 and 2 talk meanwhile, 3 waits for 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    int rank, value = 0;
    unsigned turns = 0;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        time_t end = time(NULL) + atoi(arguments[2]);
        while (time(NULL) < end)
            if (++turns % 65536 == 0 && access(arguments[1], F_OK) == 0)
                break;
        MPI_Send(&value, 1, MPI_INT, 3, 7, MPI_COMM_WORLD);
    } else if (rank == 3) {
        MPI_Recv(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        for (int round = 0; round < 40; round++) {
            usleep(20000);
            MPI_Sendrecv_replace(&value, 1, MPI_INT, 3 - rank, 8, 3 - rank, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
