/* Every call that is traced, at least once; for three ranks or more. Prints "ok" when all results are right. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size, after, before, wrong;

static void check(int is_right, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        wrong = 1;
    }
}

static void point_to_point(void)
{
    int out = rank, in = -1, flag = 0, index, done, indices[2];
    MPI_Status status, statuses[2];
    MPI_Request requests[2];
    MPI_Message message;

    for (int i = 0; i < 2; i++) {
        MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&out, 1, MPI_INT, after, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, i ? statuses : MPI_STATUSES_IGNORE);
        check(in == before, "Waitall");
    }
    check(statuses[0].MPI_SOURCE == before, "status of Waitall");

    MPI_Irecv(&in, 1, MPI_INT, before, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Issend(&out, 1, MPI_INT, after, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
    MPI_Waitany(2, requests, &index, &status);

    MPI_Irecv(&in, 1, MPI_INT, before, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&out, 1, MPI_INT, after, 3, MPI_COMM_WORLD, &requests[1]);
    for (int left = 2; left > 0; left -= done)
        MPI_Waitsome(2, requests, &done, indices, statuses);

    MPI_Irecv(&in, 1, MPI_INT, before, 4, MPI_COMM_WORLD, &requests[0]);
    MPI_Send(&out, 1, MPI_INT, after, 4, MPI_COMM_WORLD);
    while (!flag)
        MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);

    MPI_Irecv(&in, 1, MPI_INT, before, 5, MPI_COMM_WORLD, &requests[0]);
    MPI_Irsend(&out, 1, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &requests[1]);
    MPI_Ssend(&out, rank % 2 ? 1 : 1, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD);
    MPI_Isend(&out, 1, MPI_INT, after, 5, MPI_COMM_WORLD, &requests[1]);
    for (flag = 0; !flag;)
        MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);

    MPI_Irecv(&in, 1, MPI_INT, before, 6, MPI_COMM_WORLD, &requests[0]);
    requests[1] = MPI_REQUEST_NULL;
    MPI_Send(&out, 1, MPI_INT, after, 6, MPI_COMM_WORLD);
    for (flag = 0; !flag;)
        MPI_Testany(2, requests, &index, &flag, &status);
    check(index == 0 && status.MPI_TAG == 6, "Testany");

    MPI_Sendrecv(&out, 1, MPI_INT, after, 7, &in, 1, MPI_INT, before, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(in == before, "Sendrecv");
    in = rank;
    MPI_Sendrecv_replace(&in, 1, MPI_INT, after, 8, before, 8, MPI_COMM_WORLD, &status);
    check(in == before && status.MPI_SOURCE == before, "Sendrecv_replace");

    MPI_Isend(&out, 1, MPI_INT, after, 9, MPI_COMM_WORLD, &requests[0]);
    MPI_Probe(before, 9, MPI_COMM_WORLD, &status);
    MPI_Recv(&in, 1, MPI_INT, before, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Isend(&out, 1, MPI_INT, after, 10, MPI_COMM_WORLD, &requests[0]);
    MPI_Mprobe(before, 10, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(&in, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], &status);

    /* A receive that is never satisfied. */
    MPI_Irecv(&in, 1, MPI_INT, before, 11, MPI_COMM_WORLD, &requests[0]);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);

    MPI_Send_init(&out, 1, MPI_INT, after, 12, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(&in, 1, MPI_INT, before, 12, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 3; i++) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

static void collectives(MPI_Comm comm)
{
    int me, all, *many, *counts, *places, one, sum;
    MPI_Request request;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    many = calloc((size_t)all * 4, sizeof *many);
    counts = calloc((size_t)all * 2, sizeof *counts);
    places = counts + all;
    for (int i = 0; i < all; i++) {
        counts[i] = 1;
        places[i] = i;
    }
    one = me;
    MPI_Barrier(comm);
    MPI_Bcast(&one, 1, MPI_INT, all - 1, comm);
    check(one == all - 1, "Bcast");
    MPI_Reduce(&me, &sum, 1, MPI_INT, MPI_SUM, 0, comm);
    MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, comm);
    check(sum == all * (all - 1) / 2, "Allreduce");
    MPI_Gather(&me, 1, MPI_INT, many, 1, MPI_INT, 0, comm);
    MPI_Gatherv(&me, 1, MPI_INT, many, counts, places, MPI_INT, 0, comm);
    MPI_Scatter(many, 1, MPI_INT, &one, 1, MPI_INT, 0, comm);
    MPI_Scatterv(many, counts, places, MPI_INT, &one, 1, MPI_INT, 0, comm);
    check(one == me, "Scatterv");
    MPI_Allgather(&me, 1, MPI_INT, many, 1, MPI_INT, comm);
    many[me] = me;
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INT, many, counts, places, MPI_INT, comm);
    MPI_Alltoall(many, 1, MPI_INT, many + all, 1, MPI_INT, comm);
    MPI_Alltoallv(many, counts, places, MPI_INT, many + all, counts, places, MPI_INT, comm);
    check(many[all] == me || all == 1, "Alltoallv");
    MPI_Reduce_scatter(many, &one, counts, MPI_INT, MPI_SUM, comm);
    MPI_Reduce_scatter_block(many, &one, 1, MPI_INT, MPI_SUM, comm);
    MPI_Scan(&me, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Exscan(&me, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Ialltoall(many, 1, MPI_INT, many + all, 1, MPI_INT, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Iallreduce(&me, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(sum == all * (all - 1) / 2, "Iallreduce");
    MPI_Ibarrier(comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(many);
    free(counts);
}

int main(int count, char **arguments)
{
    MPI_Comm half, copy;
    int all_wrong;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    after = (rank + 1) % size;
    before = (rank + size - 1) % size;
    point_to_point();
    collectives(MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) {
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
        MPI_Comm_dup(half, &copy);
        collectives(half);
        collectives(copy);
        MPI_Comm_free(&half);
        MPI_Comm_free(&copy);
    }
    MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s\n", all_wrong ? "wrong" : "ok");
    MPI_Finalize();
    return 0;
}
