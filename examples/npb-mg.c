/* MG, NPB-derived: V-cycles of a multigrid solver for the Poisson equation on a periodic cube (RNR-94-007, section
 * 2.3.3; NAS-95-020); classes S, W and A.
 *
 *     mpicc -O2 -o npb-mg npb-mg.c -lm
 *     perturb run --mpi --hosts 4 PROFILE -- ./npb-mg S
 *
 * The cube is cut in half along up to three axes, so that each process has points even on the coarsest grid of
 * 2 x 2 x 2: 1, 2, 4 or 8 processes. After each operation on a grid the faces go to the neighbors of each axis, with
 * the edges and corners that came along the axes before: long messages on the fine grids, short ones on the coarse. */
#include "npb.h"

enum { CYCLES = 4, CHARGES = 10, MAX_LEVELS = 9 };

static const struct problem {
    int levels; /* the finest grid has 2^levels points along each axis */
    double norm;
} PROBLEMS[] = {
    {5, 0.5307707005734e-04}, /* S */
    {7, 0.6467329375339e-05}, /* W */
    {8, 0.2433365309069e-05}, /* A */
};

/* Weights of a point, its 6, 12 and 8 neighbors. */
static const double MINUS_A[4] = {8.0 / 3, 0, -1.0 / 6, -1.0 / 12};
static const double SMOOTHER[4] = {-3.0 / 8, 1.0 / 32, -1.0 / 64, 0};

/* Processes along each axis, this one's place, and who is at the other place. */
static int cuts[3], place[3], neighbor[3];

/* A grid's part of this process, with a layer of ghosts around it; the first axis is contiguous. */
struct level {
    int points[3]; /* with ghosts */
    double *u, *r;
};

static struct level levels[MAX_LEVELS + 1];
static double *v, *faces[2];

static size_t at(const struct level *level, int i, int j, int k)
{
    return i + (size_t)level->points[0] * (j + (size_t)level->points[1] * k);
}

static size_t size(const struct level *level)
{
    return (size_t)level->points[0] * level->points[1] * level->points[2];
}

/* Copies a layer across an axis from or to `face`; its length. */
static int layer(const struct level *level, double *grid, int axis, int index, double *face, int out)
{
    const int *n = level->points;
    int low[3] = {0, 0, 0}, high[3] = {n[0], n[1], n[2]}, length = 0;
    low[axis] = index;
    high[axis] = index + 1;
    for (int k = low[2]; k < high[2]; k++)
        for (int j = low[1]; j < high[1]; j++)
            for (int i = low[0]; i < high[0]; i++, length++)
                if (out)
                    face[length] = grid[at(level, i, j, k)];
                else
                    grid[at(level, i, j, k)] = face[length];
    return length;
}

/* Fills the ghosts. With two processes along an axis, both neighbors are the other one. */
static void exchange(const struct level *level, double *grid)
{
    for (int axis = 0; axis < 3; axis++)
        for (int up = 0; up < 2; up++) {
            const int last = level->points[axis] - 1;
            const int length = layer(level, grid, axis, up ? last - 1 : 1, faces[0], 1);
            double *arrived = faces[0];
            if (cuts[axis] > 1) {
                arrived = faces[1];
                MPI_Sendrecv(faces[0], length, MPI_DOUBLE, neighbor[axis], up, arrived, length, MPI_DOUBLE,
                             neighbor[axis], up, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            layer(level, grid, axis, up ? 0 : last, arrived, 0);
        }
}

/* out = base + (weights applied to in), and its ghosts. */
static void apply(const struct level *level, const double weights[4], const double *in, const double *base, double *out)
{
    const int *n = level->points;
    const size_t row = n[0], plane = at(level, 0, 0, 1);
    double near[n[0]], far[n[0]]; /* sums of the 4 nearest and 4 diagonal points of other rows */
    for (int k = 1; k < n[2] - 1; k++)
        for (int j = 1; j < n[1] - 1; j++) {
            const size_t here = at(level, 0, j, k);
            const double *x = in + here;
            for (size_t i = 0; i < row; i++) {
                near[i] = x[i - row] + x[i + row] + x[i - plane] + x[i + plane];
                far[i] = x[i - plane - row] + x[i - plane + row] + x[i + plane - row] + x[i + plane + row];
            }
            for (size_t i = 1; i < row - 1; i++)
                out[here + i] = base[here + i] + weights[0] * x[i] + weights[1] * (x[i - 1] + x[i + 1] + near[i]) +
                                weights[2] * (near[i - 1] + near[i + 1] + far[i]) +
                                weights[3] * (far[i - 1] + far[i + 1]);
        }
    exchange(level, out);
}

/* The residual on the next coarser grid: point i there is point 2 i here, both counted from 1 without ghosts. */
static void restrict_residual(const struct level *fine, const struct level *coarse)
{
    static const double WEIGHT[4] = {1.0 / 2, 1.0 / 4, 1.0 / 8, 1.0 / 16}; /* by the number of axes moved along */
    const int *n = coarse->points;
    for (int k = 1; k < n[2] - 1; k++)
        for (int j = 1; j < n[1] - 1; j++)
            for (int i = 1; i < n[0] - 1; i++) {
                double sum = 0;
                for (int dk = -1; dk <= 1; dk++)
                    for (int dj = -1; dj <= 1; dj++)
                        for (int di = -1; di <= 1; di++)
                            sum += WEIGHT[abs(di) + abs(dj) + abs(dk)] *
                                   fine->r[at(fine, 2 * i + di, 2 * j + dj, 2 * k + dk)];
                coarse->r[at(coarse, i, j, k)] = sum;
            }
    exchange(coarse, coarse->r);
}

/* Adds the coarser grid's correction, by trilinear interpolation, at ghosts, too. */
static void interpolate(const struct level *coarse, const struct level *fine)
{
    const int *n = fine->points;
    for (int k = 0; k < n[2]; k++)
        for (int j = 0; j < n[1]; j++)
            for (int i = 0; i < n[0]; i++) {
                double sum = 0;
                for (int corner = 0; corner < 8; corner++)
                    sum += coarse->u[at(coarse, (i + (corner & 1)) / 2, (j + (corner >> 1 & 1)) / 2,
                                        (k + (corner >> 2)) / 2)];
                fine->u[at(fine, i, j, k)] += sum / 8;
            }
}

static void clear(const struct level *level)
{
    memset(level->u, 0, size(level) * sizeof *level->u);
}

static void cycle(int top)
{
    for (int level = top; level > 1; level--)
        restrict_residual(&levels[level], &levels[level - 1]);
    for (int level = 1; level <= top; level++) {
        const struct level *here = &levels[level];
        if (level < top)
            clear(here);
        if (level > 1) {
            interpolate(here - 1, here);
            apply(here, MINUS_A, here->u, level < top ? here->r : v, here->r);
        }
        apply(here, SMOOTHER, here->r, here->u, here->u);
    }
}

struct charge {
    double value;
    long index;
};

/* Keeps the largest ones, descending. */
static void keep(struct charge *largest, double value, long index)
{
    if (value <= largest[CHARGES - 1].value)
        return;
    int rank = CHARGES - 1;
    for (; rank > 0 && largest[rank - 1].value < value; rank--)
        largest[rank] = largest[rank - 1];
    largest[rank] = (struct charge){value, index};
}

/* v is 1 where the ten largest of as many random numbers as points are, -1 where the ten smallest are. */
static void place_charges(const struct npb *run, const struct level *level)
{
    const int *n = level->points;
    const long edge = (n[0] - 2L) * cuts[0];
    struct charge mine[2][CHARGES], all[CHARGES];
    for (int sign = 0; sign < 2; sign++)
        for (int rank = 0; rank < CHARGES; rank++)
            mine[sign][rank] = (struct charge){-2, -1};
    for (int k = 1; k < n[2] - 1; k++)
        for (int j = 1; j < n[1] - 1; j++) {
            const long y = j - 1 + place[1] * (n[1] - 2L), z = k - 1 + place[2] * (n[2] - 2L);
            const long first = place[0] * (n[0] - 2L) + edge * (y + edge * z);
            uint64_t seed = npb_skip(NPB_SEED, first);
            for (int i = 0; i < n[0] - 2; i++) {
                const double value = npb_random(&seed);
                keep(mine[0], value, first + i);
                keep(mine[1], -value, first + i);
            }
        }
    struct charge *gathered = npb_room((size_t)run->size * CHARGES, sizeof *gathered);
    for (int sign = 0; sign < 2; sign++) {
        MPI_Allgather(mine[sign], sizeof mine[sign], MPI_BYTE, gathered, sizeof mine[sign], MPI_BYTE, MPI_COMM_WORLD);
        for (int rank = 0; rank < CHARGES; rank++)
            all[rank] = (struct charge){-2, -1};
        for (int i = 0; i < run->size * CHARGES; i++)
            keep(all, gathered[i].value, gathered[i].index);
        for (int rank = 0; rank < CHARGES; rank++) {
            const long at_x = all[rank].index % edge, rest = all[rank].index / edge;
            const long index[3] = {at_x, rest % edge, rest / edge};
            int own[3], here = 1;
            for (int axis = 0; axis < 3; axis++) {
                own[axis] = (int)(index[axis] - place[axis] * (n[axis] - 2L)) + 1;
                here &= own[axis] >= 1 && own[axis] <= n[axis] - 2;
            }
            if (here)
                v[at(level, own[0], own[1], own[2])] = sign ? -1 : 1;
        }
    }
    free(gathered);
    exchange(level, v);
}

int main(int argc, char **argv)
{
    struct npb run = npb_begin(&argc, &argv, "MG", "SWA");
    const int top = PROBLEMS[run.index].levels;
    npb_demand(&run, npb_is_power_of_two(run.size) && run.size <= 8, "be 1, 2, 4 or 8");
    /* The last axis is cut first, whose faces are contiguous. */
    for (int axis = 0, stride = 1; axis < 3; axis++) {
        cuts[axis] = run.size >> (2 - axis) > 1 ? 2 : 1;
        place[axis] = run.self / stride % cuts[axis];
        neighbor[axis] = cuts[axis] > 1 ? run.self ^ stride : run.self;
        stride *= cuts[axis];
    }
    for (int level = 1; level <= top; level++) {
        struct level *here = &levels[level];
        for (int axis = 0; axis < 3; axis++)
            here->points[axis] = (1 << level) / cuts[axis] + 2;
        here->u = npb_room(size(here), sizeof *here->u);
        here->r = npb_room(size(here), sizeof *here->r);
    }
    const struct level *finest = &levels[top];
    v = npb_room(size(finest), sizeof *v);
    const size_t widest = (size_t)((1 << top) + 2) * ((1 << top) + 2);
    for (int i = 0; i < 2; i++)
        faces[i] = npb_room(widest, sizeof *faces[i]);
    place_charges(&run, finest);

    /* Cycle 0 is not timed, and begun anew. */
    for (int number = 0; number <= CYCLES; number++) {
        if (number == 1)
            npb_start(&run);
        if (number <= 1) {
            clear(finest);
            apply(finest, MINUS_A, finest->u, v, finest->r);
        }
        cycle(top);
        apply(finest, MINUS_A, finest->u, v, finest->r);
    }
    const int *n = finest->points;
    double mine = 0, sum;
    for (int k = 1; k < n[2] - 1; k++)
        for (int j = 1; j < n[1] - 1; j++)
            for (int i = 1; i < n[0] - 1; i++)
                mine += finest->r[at(finest, i, j, k)] * finest->r[at(finest, i, j, k)];
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    npb_stop(&run);
    npb_verify(&run, "the residual's norm", sqrt(sum / pow(2, 3.0 * top)), PROBLEMS[run.index].norm, 1e-8);
    return npb_end(&run);
}
