/* EP, NPB-derived: pairs of normal deviates (RNR-94-007, section 2.3.1); classes S, W and A, and a short class T
 * without published values, for sweeps.
 *
 *     mpicc -O2 -o npb-ep npb-ep.c -lm
 *     perturb run --mpi --hosts 4 PROFILE -- ./npb-ep S
 *
 * All computation but a few sums at the end: it must not respond to the network. */
#include "npb.h"

static const struct problem {
    int pairs_log;
    double x, y;
} PROBLEMS[] = {
    {24, -3.247834652034740e3, -6.958407078382297e3}, /* S */
    {25, -2.863319731645753e3, -6.320053679109499e3}, /* W */
    {28, -4.295875165629892e3, -1.580732573678431e4}, /* A */
    {20, 0, 0},                                       /* T */
};
static const uint64_t SEED = 271828183;

int main(int argc, char **argv)
{
    struct npb run = npb_begin(&argc, &argv, "EP", "SWAT");
    const struct problem *problem = &PROBLEMS[run.index];
    const uint64_t pairs = UINT64_C(1) << problem->pairs_log;
    const uint64_t first = pairs * run.self / run.size, last = pairs * (run.self + 1) / run.size;

    npb_start(&run);
    double mine[2] = {0, 0}, sum[2], rings[10] = {0}, total[10];
    uint64_t seed = npb_skip(SEED, 2 * first);
    for (uint64_t pair = first; pair < last; pair++) {
        const double x = 2 * npb_random(&seed) - 1;
        const double y = 2 * npb_random(&seed) - 1;
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
    npb_stop(&run);

    if (problem->x != 0) {
        npb_verify(&run, "the sum of x", sum[0], problem->x, 1e-8);
        npb_verify(&run, "the sum of y", sum[1], problem->y, 1e-8);
    }
    return npb_end(&run);
}
