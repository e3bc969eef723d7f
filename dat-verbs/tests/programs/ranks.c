/* Ranks of MPI exchange messages and check what arrives. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST (1 << 20)
#define VALUES 1024

static void check(int is_right, const char *what) {
    if (!is_right) {
        fprintf(stderr, "wrong data: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static unsigned char pattern(int index, int rank, int round) {
    return (unsigned char)(index * 7 + rank * 3 + round);
}

static void exchange(int rank, int ranks, int length, int round) {
    static unsigned char sent[LARGEST], got[LARGEST];
    static int own[LARGEST / 4], sums[LARGEST / 4];
    int before = (rank + ranks - 1) % ranks, count = length / 4 + 1;
    for (int i = 0; i < length; i++)
        sent[i] = pattern(i, rank, round);
    memset(got, 0, sizeof got);
    MPI_Sendrecv(sent, length, MPI_BYTE, (rank + 1) % ranks, 1, got, length, MPI_BYTE, before, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < length; i++)
        check(got[i] == pattern(i, before, round), "send");
    for (int i = 0; i < length; i++)
        got[i] = rank == 0 ? pattern(i, 9, round) : 0;
    MPI_Bcast(got, length, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int i = 0; i < length; i++)
        check(got[i] == pattern(i, 9, round), "broadcast");
    if (count > LARGEST / 4)
        count = LARGEST / 4;
    for (int i = 0; i < count; i++)
        own[i] = i + rank;
    MPI_Allreduce(own, sums, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        check(sums[i] == ranks * i + ranks * (ranks - 1) / 2, "reduction");
}

static void access_window(int rank, int ranks) {
    int *memory, values[VALUES], one = 1;
    MPI_Win window;
    MPI_Win_allocate((MPI_Aint)ranks * sizeof values, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                     &memory, &window);
    for (int i = 0; i < VALUES; i++)
        values[i] = i + rank;
    MPI_Win_fence(0, window);
    for (int peer = 0; peer < ranks; peer++)
        MPI_Put(values, VALUES, MPI_INT, peer, (MPI_Aint)rank * VALUES, VALUES, MPI_INT, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < ranks * VALUES; i++)
        check(memory[i] == i % VALUES + i / VALUES, "put");
    MPI_Win_fence(0, window);
    for (int i = 0; i < 10; i++)
        MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, window);
    MPI_Win_fence(0, window);
    check(rank != 0 || memory[0] == 10 * ranks, "accumulate");
    MPI_Win_free(&window);
}

int main(int count, char **arguments) {
    int rank, ranks;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0; round < 5; round++)
        for (int length = 1; length <= LARGEST; length *= 32)
            exchange(rank, ranks, length, round);
    access_window(rank, ranks);
    MPI_Finalize();
    return 0;
}
