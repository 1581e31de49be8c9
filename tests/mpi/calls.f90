! Calls of both kinds of Fortran bindings; prints "ok" when all results are right.
module old_binding
contains
  subroutine ring(rank, size, right)
    use mpi
    integer, intent(in) :: rank, size
    logical, intent(inout) :: right
    integer :: out, in, error, after, before, total, request(2), status(MPI_STATUS_SIZE), index
    after = mod(rank + 1, size)
    before = mod(rank + size - 1, size)
    out = rank
    call MPI_Irecv(in, 1, MPI_INTEGER, before, 1, MPI_COMM_WORLD, request(1), error)
    call MPI_Isend(out, 1, MPI_INTEGER, after, 1, MPI_COMM_WORLD, request(2), error)
    call MPI_Waitall(2, request, MPI_STATUSES_IGNORE, error)
    right = right .and. in == before
    call MPI_Irecv(in, 1, MPI_INTEGER, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, request(1), error)
    call MPI_Send(out, 1, MPI_INTEGER, after, 2, MPI_COMM_WORLD, error)
    request(2) = MPI_REQUEST_NULL
    call MPI_Waitany(2, request, index, status, error)
    right = right .and. index == 1 .and. status(MPI_SOURCE) == before
    call MPI_Sendrecv(out, 1, MPI_INTEGER, after, 3, in, 1, MPI_INTEGER, before, 3, MPI_COMM_WORLD, &
                      MPI_STATUS_IGNORE, error)
    total = rank
    call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    right = right .and. total == size * (size - 1) / 2
    call MPI_Barrier(MPI_COMM_WORLD, error)
  end subroutine
end module

module new_binding
contains
  subroutine ring_again(rank, size, right)
    use mpi_f08
    integer, intent(in) :: rank, size
    logical, intent(inout) :: right
    integer :: out, in, after, before
    type(MPI_Request) :: request
    type(MPI_Status) :: status
    type(MPI_Comm) :: comm
    after = mod(rank + 1, size)
    before = mod(rank + size - 1, size)
    out = rank
    call MPI_Comm_dup(MPI_COMM_WORLD, comm)
    call MPI_Isend(out, 1, MPI_INTEGER, after, 4, comm, request)
    call MPI_Recv(in, 1, MPI_INTEGER, before, 4, comm, status)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    right = right .and. in == before .and. status%MPI_SOURCE == before
    call MPI_Bcast(out, 1, MPI_INTEGER, 0, comm)
    right = right .and. out == 0
    call MPI_Comm_free(comm)
  end subroutine
end module

program calls
  use mpi
  use old_binding
  use new_binding
  integer :: rank, size, error
  logical :: right, all_right
  right = .true.
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, size, error)
  call ring(rank, size, right)
  call ring_again(rank, size, right)
  call MPI_Reduce(right, all_right, 1, MPI_LOGICAL, MPI_LAND, 0, MPI_COMM_WORLD, error)
  if (rank == 0 .and. all_right) print '(a)', 'ok'
  call MPI_Finalize(error)
end program
