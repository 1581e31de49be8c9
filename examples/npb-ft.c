/* FT, NPB-derived: a diffusion equation in three dimensions, solved by Fourier transforms (RNR-94-007, section 2.3.5;
 * NAS-95-020); classes S, W and A.
 *
 *     mpicc -O2 -o npb-ft npb-ft.c -lm
 *     perturb run --mpi --hosts 4 PROFILE -- ./npb-ft S
 *
 * Each process has some of the planes across the third axis (z), and, of what is transformed, some of those across the
 * second (y). Each transform in space is two local ones, an exchange of everything between all (the transposition), and
 * a third: few, bulky messages. */
#include <complex.h>

#include "npb.h"

typedef double complex number;

enum { ITERATIONS = 6, SAMPLES = 1024 };
static const double ALPHA = 1e-6, PI = 3.14159265358979323846;

static const struct problem {
    int nx, ny, nz;
    number sums[ITERATIONS];
} PROBLEMS[] = {
    /* S */
    {64, 64, 64,
     {554.6087004964 + 484.5363331978 * I, 554.6385409189 + 486.5304269511 * I, 554.6148406171 + 488.3910722336 * I,
      554.5423607415 + 490.1273169046 * I, 554.4255039624 + 491.7475857993 * I, 554.2683411902 + 493.2597244941 * I}},
    /* W */
    {128, 128, 32,
     {567.3612178944 + 529.3246849175 * I, 563.1436885271 + 528.2149986629 * I, 559.4024089970 + 527.0996558037 * I,
      556.0698047020 + 526.0027904925 * I, 553.0898991250 + 524.9400845633 * I, 550.4159734538 + 523.9212247086 * I}},
    /* A */
    {256, 256, 128,
     {504.6735008193 + 511.4047905510 * I, 505.9412319734 + 509.8809666433 * I, 506.9376896287 + 509.8144042213 * I,
      507.7892868474 + 510.1336130759 * I, 508.5233095391 + 510.4914655194 * I, 509.1487099959 + 510.7917842803 * I}},
};

static int nx, ny, nz, own_y, own_z, processes, self;

/* By planes: x, then y, then this process's z. By columns: z, then x, then this process's y. */
static size_t by_planes(int x, int y, int z)
{
    return x + (size_t)nx * (y + (size_t)ny * z);
}

static size_t by_columns(int x, int y, int z)
{
    return z + (size_t)nz * (x + (size_t)nx * y);
}

/* Without the test for infinities that the language's product has. */
static number times(number a, number b)
{
    return CMPLX(creal(a) * creal(b) - cimag(a) * cimag(b), creal(a) * cimag(b) + cimag(a) * creal(b));
}

/* Transforms a line whose length is a power of two; sign of the exponent. */
static void transform(number *line, int length, int sign, const number *roots, int root_count)
{
    for (int i = 1, j = 0; i < length; i++) {
        int bit = length / 2;
        for (; j & bit; bit /= 2)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            const number swapped = line[i];
            line[i] = line[j];
            line[j] = swapped;
        }
    }
    for (int half = 1; half < length; half *= 2)
        for (int offset = 0; offset < half; offset++) {
            const number root = roots[root_count / (2 * half) * offset];
            const number factor = sign > 0 ? root : conj(root);
            for (int i = offset; i < length; i += 2 * half) {
                const number odd = times(factor, line[i + half]);
                line[i + half] = line[i] - odd;
                line[i] += odd;
            }
        }
}

static number *roots, *line, *packed, *arrived;
static int root_count;

/* x and y of the planes. */
static void transform_planes(number *planes, int sign)
{
    for (int z = 0; z < own_z; z++) {
        for (int y = 0; y < ny; y++)
            transform(planes + by_planes(0, y, z), nx, sign, roots, root_count);
        for (int x = 0; x < nx; x++) {
            for (int y = 0; y < ny; y++)
                line[y] = planes[by_planes(x, y, z)];
            transform(line, ny, sign, roots, root_count);
            for (int y = 0; y < ny; y++)
                planes[by_planes(x, y, z)] = line[y];
        }
    }
}

static void transform_columns(number *columns, int sign)
{
    for (int y = 0; y < own_y; y++)
        for (int x = 0; x < nx; x++)
            transform(columns + by_columns(x, y, 0), nz, sign, roots, root_count);
}

/* Copies a grid to or from blocks, one for each process: the columns that a process has of another's planes. */
static void copy(number *grid, int is_columns, number *block, int out)
{
    for (int process = 0; process < processes; process++)
        for (int z = 0; z < own_z; z++)
            for (int y = 0; y < own_y; y++)
                for (int x = 0; x < nx; x++, block++) {
                    number *here = &grid[is_columns ? by_columns(x, y, process * own_z + z)
                                                    : by_planes(x, process * own_y + y, z)];
                    if (out)
                        *block = *here;
                    else
                        *here = *block;
                }
}

/* From columns to planes, or back: everything goes from all to all. */
static void transpose(number *from, int from_columns, number *to)
{
    const int bytes = (int)(sizeof(number) * nx * own_y * own_z);
    copy(from, from_columns, packed, 1);
    MPI_Alltoall(packed, bytes, MPI_BYTE, arrived, bytes, MPI_BYTE, MPI_COMM_WORLD);
    copy(to, !from_columns, arrived, 0);
}

/* Of an index, the wave number. */
static int wave(int index, int length)
{
    return (index + length / 2) % length - length / 2;
}

int main(int argc, char **argv)
{
    struct npb run = npb_begin(&argc, &argv, "FT", "SWA");
    const struct problem *problem = &PROBLEMS[run.index];
    nx = problem->nx, ny = problem->ny, nz = problem->nz;
    self = run.self, processes = run.size;
    npb_demand(&run, ny % processes == 0 && nz % processes == 0, "divide the grid's planes");
    own_y = ny / processes;
    own_z = nz / processes;
    const size_t points = (size_t)nx * ny * own_z;
    number *planes = npb_room(points, sizeof *planes), *columns = npb_room(points, sizeof *columns);
    number *transformed = npb_room(points, sizeof *transformed);
    double *decay = npb_room(points, sizeof *decay);
    packed = npb_room(points, sizeof *packed);
    arrived = npb_room(points, sizeof *arrived);
    root_count = nx > ny ? nx : ny;
    if (nz > root_count)
        root_count = nz;
    line = npb_room(root_count, sizeof *line);
    roots = npb_room(root_count, sizeof *roots);
    for (int i = 0; i < root_count; i++)
        roots[i] = cexp(2 * PI * I * i / root_count);

    uint64_t seed = npb_skip(NPB_SEED, 2 * points * self);
    for (size_t i = 0; i < points; i++) {
        const double real = npb_random(&seed);
        planes[i] = CMPLX(real, npb_random(&seed));
    }
    for (int y = 0; y < own_y; y++)
        for (int x = 0; x < nx; x++)
            for (int z = 0; z < nz; z++) {
                const int kx = wave(x, nx), ky = wave(self * own_y + y, ny), kz = wave(z, nz);
                decay[by_columns(x, y, z)] = exp(-4 * ALPHA * PI * PI * (kx * kx + ky * ky + kz * kz));
            }
    /* Opens the connections. */
    transpose(planes, 0, columns);

    npb_start(&run);
    transform_planes(planes, 1);
    transpose(planes, 0, transformed);
    transform_columns(transformed, 1);
    number sums[ITERATIONS];
    for (int iteration = 0; iteration < ITERATIONS; iteration++) {
        for (size_t i = 0; i < points; i++)
            columns[i] = transformed[i] *= decay[i];
        transform_columns(columns, -1);
        transpose(columns, 1, planes);
        transform_planes(planes, -1);
        number mine = 0;
        for (int i = 1; i <= SAMPLES; i++) {
            const int x = i % nx, y = 3 * i % ny, z = 5 * i % nz - self * own_z;
            if (z >= 0 && z < own_z)
                mine += planes[by_planes(x, y, z)];
        }
        MPI_Allreduce(&mine, &sums[iteration], 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        sums[iteration] /= (double)nx * ny * nz;
    }
    npb_stop(&run);
    for (int iteration = 0; iteration < ITERATIONS; iteration++) {
        npb_verify(&run, "a checksum's real part", creal(sums[iteration]), creal(problem->sums[iteration]), 1e-12);
        npb_verify(&run, "a checksum's imaginary part", cimag(sums[iteration]), cimag(problem->sums[iteration]), 1e-12);
    }
    return npb_end(&run);
}
