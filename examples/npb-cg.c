/* CG, NPB-derived: smallest eigenvalue of a sparse matrix by inverse iteration, each step of which solves a system by
 * 25 steps of the conjugate gradient method (RNR-94-007, section 2.3.4; NAS-95-020); classes S, W and A.
 *
 *     mpicc -O2 -o npb-cg npb-cg.c -lm
 *     perturb run --mpi --hosts 4 PROFILE -- ./npb-cg S
 *
 * The matrix is cut into blocks, on a grid of processes that has as many columns as rows, or twice as many. Process
 * (r, c) has the c-th part of each vector, as all of its column have. A product of matrix and vector is summed along
 * the rows (recursive doubling) and comes back as parts by columns (an exchange with the transposed process); a scalar
 * product is summed along the rows. So the kernel waits for long and for many short messages, one after another. */
#include "npb.h"

enum { OUTER = 15, INNER = 25 };
static const double RCOND = 0.1;

static const struct problem {
    int order, nonzero;
    double shift, zeta;
} PROBLEMS[] = {
    {1400, 7, 10, 8.5971775078648},    /* S */
    {7000, 8, 12, 10.362595087124},    /* W */
    {14000, 11, 20, 17.130235054029}, /* A */
};

/* The place of a process on the grid. */
static struct grid {
    int rows, columns, row, column, order;
    int row_first, row_count;       /* of the block's rows */
    int column_first, column_count; /* of its columns, and of the vectors' part */
    int partner, partner_at, partner_count; /* with whom parts are exchanged, and which of the rows it wants */
} grid;

static int cut(int column)
{
    return (int)((long)grid.order * column / grid.columns);
}

static void place(const struct npb *run, int order)
{
    grid.order = order;
    for (grid.rows = 1; grid.rows * grid.rows * 4 <= run->size;)
        grid.rows *= 2;
    grid.columns = run->size / grid.rows;
    grid.row = run->self / grid.columns;
    grid.column = run->self % grid.columns;
    const int wide = grid.columns / grid.rows; /* 1 or 2 parts for each row of the grid */
    grid.row_first = cut(grid.row * wide);
    grid.row_count = cut((grid.row + 1) * wide) - grid.row_first;
    grid.column_first = cut(grid.column);
    grid.column_count = cut(grid.column + 1) - grid.column_first;
    const int half = grid.column % wide, row = grid.column / wide, column = grid.row * wide + half;
    grid.partner = row * grid.columns + column;
    grid.partner_at = cut(column) - grid.row_first;
    grid.partner_count = cut(column + 1) - cut(column);
}

/* Sums along the row of the grid. */
static void sum_row(double *values, int count, double *received)
{
    for (int bit = 1; bit < grid.columns; bit *= 2) {
        const int other = grid.row * grid.columns + (grid.column ^ bit);
        MPI_Sendrecv(values, count, MPI_DOUBLE, other, bit, received, count, MPI_DOUBLE, other, bit, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++)
            values[i] += received[i];
    }
}

static double product(const double *x, const double *y)
{
    double sum = 0, received;
    for (int i = 0; i < grid.column_count; i++)
        sum += x[i] * y[i];
    sum_row(&sum, 1, &received);
    return sum;
}

/* ---- the matrix ---- */

/* This process's block; the elements of row i are start[i] to start[i + 1]. */
static int *start, *columns;
static double *values;

struct element {
    int row, column;
    double value;
};

/* A sparse vector with so many random elements, and 0.5 at `at`; how many it has. */
static int random_vector(uint64_t *seed, int order, int nonzero, int at, int *index, double *element)
{
    int range = 1, count = 0, found = 0;
    while (range < order)
        range *= 2;
    while (count < nonzero) {
        const double value = npb_random(seed);
        const int place = (int)(range * npb_random(seed));
        int known = place >= order;
        for (int i = 0; i < count && !known; i++)
            known = index[i] == place;
        if (known)
            continue;
        index[count] = place;
        element[count++] = value;
    }
    for (int i = 0; i < count; i++)
        if (index[i] == at) {
            element[i] = 0.5;
            found = 1;
        }
    if (!found) {
        index[count] = at;
        element[count++] = 0.5;
    }
    return count;
}

static int is_within(int i, int first, int count)
{
    return i >= first && i < first + count;
}

/* The sum of outer products of the vectors with themselves, each RCOND^(1/n) times as heavy as the one before. */
static void make_matrix(const struct problem *problem)
{
    const int order = problem->order;
    size_t count = 0, room = 1024;
    struct element *elements = npb_room(room, sizeof *elements);
    int *index = npb_room(problem->nonzero + 1, sizeof *index);
    double *element = npb_room(problem->nonzero + 1, sizeof *element);
    uint64_t seed = NPB_SEED;
    npb_random(&seed); /* the specification's program draws one before */
    double weight = 1;
    const double ratio = pow(RCOND, 1.0 / order);
    for (int i = 0; i < order; i++, weight *= ratio) {
        const int length = random_vector(&seed, order, problem->nonzero, i, index, element);
        for (int a = 0; a < length; a++)
            for (int b = 0; b < length; b++) {
                const int row = index[a], column = index[b];
                if (!is_within(row, grid.row_first, grid.row_count) ||
                    !is_within(column, grid.column_first, grid.column_count))
                    continue;
                if (count == room) {
                    room *= 2;
                    elements = realloc(elements, room * sizeof *elements);
                    if (!elements)
                        MPI_Abort(MPI_COMM_WORLD, 1);
                }
                double value = weight * element[a] * element[b];
                if (row == column && row == i)
                    value += RCOND - problem->shift;
                elements[count++] = (struct element){row - grid.row_first, column - grid.column_first, value};
            }
    }
    free(index);
    free(element);

    /* By rows; those of the same place are added. */
    int *first = npb_room(grid.row_count + 1, sizeof *first), *order_of = npb_room(count, sizeof *order_of);
    for (size_t i = 0; i < count; i++)
        first[elements[i].row + 1]++;
    for (int row = 0; row < grid.row_count; row++)
        first[row + 1] += first[row];
    start = npb_room(grid.row_count + 1, sizeof *start);
    memcpy(start, first, grid.row_count * sizeof *start);
    for (size_t i = 0; i < count; i++)
        order_of[start[elements[i].row]++] = (int)i;
    columns = npb_room(count, sizeof *columns);
    values = npb_room(count, sizeof *values);
    int *seen = npb_room(grid.column_count, sizeof *seen), used = 0;
    for (int row = 0; row < grid.row_count; row++) {
        start[row] = used;
        for (int i = first[row]; i < first[row + 1]; i++) {
            const struct element *here = &elements[order_of[i]];
            int *at = &seen[here->column]; /* one more than its place, if it is of this row */
            if (*at <= start[row]) {
                columns[used] = here->column;
                *at = ++used;
            }
            values[*at - 1] += here->value;
        }
    }
    start[grid.row_count] = used;
    free(seen);
    free(order_of);
    free(first);
    free(elements);
}

/* y = A x, both by columns. */
static void multiply(const double *x, double *y, double *work, double *received)
{
    for (int row = 0; row < grid.row_count; row++) {
        double sum = 0;
        for (int i = start[row]; i < start[row + 1]; i++)
            sum += values[i] * x[columns[i]];
        work[row] = sum;
    }
    sum_row(work, grid.row_count, received);
    MPI_Sendrecv(work + grid.partner_at, grid.partner_count, MPI_DOUBLE, grid.partner, 0, y, grid.column_count,
                 MPI_DOUBLE, grid.partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    struct npb run = npb_begin(&argc, &argv, "CG", "SWA");
    const struct problem *problem = &PROBLEMS[run.index];
    npb_demand(&run, npb_is_power_of_two(run.size), "be a power of two");
    place(&run, problem->order);
    make_matrix(problem);

    const int own = grid.column_count;
    double *x = npb_room(own, sizeof *x), *z = npb_room(own, sizeof *z), *p = npb_room(own, sizeof *p);
    double *q = npb_room(own, sizeof *q), *r = npb_room(own, sizeof *r);
    double *work = npb_room(grid.row_count, sizeof *work), *received = npb_room(grid.row_count, sizeof *received);
    double zeta = 0, residual = 0;
    /* Iteration 0 is not timed, and begun anew. */
    for (int iteration = 0; iteration <= OUTER; iteration++) {
        if (iteration == 1)
            npb_start(&run);
        for (int i = 0; i < own; i++) {
            if (iteration <= 1)
                x[i] = 1;
            z[i] = 0;
            r[i] = p[i] = x[i];
        }
        double rho = product(r, r);
        for (int step = 0; step < INNER; step++) {
            multiply(p, q, work, received);
            const double alpha = rho / product(p, q), before = rho;
            for (int i = 0; i < own; i++) {
                z[i] += alpha * p[i];
                r[i] -= alpha * q[i];
            }
            rho = product(r, r);
            for (int i = 0; i < own; i++)
                p[i] = r[i] + rho / before * p[i];
        }
        /* The residual |x - A z|, which the benchmark computes, too. */
        multiply(z, q, work, received);
        for (int i = 0; i < own; i++)
            r[i] = x[i] - q[i];
        const double length = sqrt(product(z, z));
        residual = sqrt(product(r, r));
        zeta = problem->shift + 1 / product(x, z);
        for (int i = 0; i < own; i++)
            x[i] = z[i] / length;
    }
    npb_stop(&run);
    npb_check(&run, residual < 1e-8, "the last system is not solved");
    npb_verify(&run, "zeta", zeta, problem->zeta, 1e-10);
    return npb_end(&run);
}
