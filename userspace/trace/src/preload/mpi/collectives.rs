//! Collective operations: which, over which communicator, how many bytes. The collector turns them into
//! messages.
#![allow(non_snake_case, reason = "the names are MPI's")]

use std::ffi::c_int;

use super::abi::{self, Abi, Address, Handle, bytes};
use super::call::{Call, Language, Requests, Spare};
use super::define::{c_type, define, passed, value};
use super::shape::Shape;
use crate::record::Collective;

/// Bytes that everyone gets from everyone: the receiving side is always valid.
fn each(count: c_int, datatype: Handle) -> Shape {
    Shape::of(bytes(count, datatype), 0)
}

/// What the root scatters to each, as the root and the others know it.
fn scattered(
    call: &Call,
    comm: Handle,
    root: c_int,
    at_root: impl FnOnce() -> u64,
    elsewhere: impl FnOnce() -> u64,
) -> Shape {
    let bytes = if call.rank(comm) == root {
        at_root()
    } else {
        elsewhere()
    };
    Shape::of(bytes, root)
}

/// What this process gives to the root; the root's own part moves nowhere.
fn gathered(call: &Call, comm: Handle, root: c_int, count: c_int, datatype: Handle) -> Shape {
    let bytes = if call.rank(comm) == root {
        0
    } else {
        bytes(count, datatype)
    };
    Shape::of(bytes, root)
}

/// From an array with a count for each rank.
fn counted(call: &Call, comm: Handle, root: c_int, counts: Address, datatype: Handle) -> Shape {
    // SAFETY: the caller passes a count for each rank.
    unsafe { Shape::of_counts(counts.cast(), call.size(comm), root, |_| datatype) }
}

/// The root's scattered counts; nobody else has them.
fn scattered_counts(
    call: &Call,
    comm: Handle,
    root: c_int,
    counts: Address,
    datatype: Handle,
    own: u64,
) -> Shape {
    if call.rank(comm) == root {
        counted(call, comm, root, counts, datatype)
    } else {
        Shape::of(own, root)
    }
}

/// What this process gives to all: its own count, in place where that is among those of all.
fn given(call: &Call, comm: Handle, data: Address, own: u64, (counts, datatype): (Address, Handle)) -> Shape {
    if !Abi::of_process().is_in_place(data) {
        return Shape::of(own, 0);
    }
    let rank = usize::try_from(call.rank(comm)).unwrap_or(0);
    // SAFETY: the caller passes a count for each rank.
    let count = unsafe { counts.cast::<c_int>().add(rank).read() };
    Shape::of(bytes(count, datatype), 0)
}

/// A count and type for each destination, those of the receiving side if in place.
fn exchanged(
    call: &Call,
    comm: Handle,
    data: Address,
    (counts, datatype): (Address, Handle),
    (room_counts, room_type): (Address, Handle),
) -> Shape {
    if Abi::of_process().is_in_place(data) {
        counted(call, comm, 0, room_counts, room_type)
    } else {
        counted(call, comm, 0, counts, datatype)
    }
}

/// As [`exchanged`], with a type for each.
fn exchanged_types(
    call: &Call,
    comm: Handle,
    data: Address,
    (counts, types): (Address, Requests),
    (room_counts, room_types): (Address, Requests),
) -> Shape {
    let (counts, types) = if Abi::of_process().is_in_place(data) {
        (room_counts, room_types)
    } else {
        (counts, types)
    };
    let datatype = |index: usize| match types.language {
        // SAFETY: the caller passes a type for each rank.
        Language::C => unsafe { Abi::of_process().handle_at(types.array, index) },
        Language::Fortran => {
            // SAFETY: as above; Fortran's are integers.
            let number = unsafe { types.array.cast::<c_int>().add(index).read() };
            abi::type_from_fortran(number as isize as Handle)
        }
    };
    // SAFETY: the caller passes a count for each rank.
    unsafe { Shape::of_counts(counts.cast(), call.size(comm), 0, datatype) }
}

/// Defines a collective and its non-blocking form.
macro_rules! collective {
    ($(
        $which:ident $c:ident $fortran:ident $f08:ident / $ic:ident $ifortran:ident $if08:ident
        ($($argument:ident: $sort:ident),*), $comm:ident => |$call:ident| $shape:expr;
    )*) => {
        define! {$(
            $c $fortran $f08 ($($argument: $sort,)* $comm: comm)
                before |$call, _language| {
                    // At once: others may compute for long before this one goes on.
                    $call.collective(Collective::$which, $comm, &$shape, 0);
                    Spare::none()
                };
                => |_call, _spare| ();
            $ic $ifortran $if08 ($($argument: $sort,)* $comm: comm, request: requests)
                => |$call, _spare| $call.collective(Collective::$which, $comm, &$shape, request.get());
        )*}
    };
}

collective! {
    Barrier MPI_Barrier mpi_barrier_ mpi_barrier_f08_ / MPI_Ibarrier mpi_ibarrier_ mpi_ibarrier_f08_
        (), comm => |call| Shape::of(0, 0);
    Broadcast MPI_Bcast mpi_bcast_ mpi_bcast_f08_ / MPI_Ibcast mpi_ibcast_ mpi_ibcast_f08_
        (data: buffer, count: count, datatype: datatype, root: count), comm
        => |call| Shape::of(bytes(count, datatype), root);
    Reduce MPI_Reduce mpi_reduce_ mpi_reduce_f08_ / MPI_Ireduce mpi_ireduce_ mpi_ireduce_f08_
        (data: buffer, room: buffer, count: count, datatype: datatype, operation: other, root: count), comm
        => |call| Shape::of(bytes(count, datatype), root);
    AllReduce MPI_Allreduce mpi_allreduce_ mpi_allreduce_f08_ / MPI_Iallreduce mpi_iallreduce_ mpi_iallreduce_f08_
        (data: buffer, room: buffer, count: count, datatype: datatype, operation: other), comm
        => |call| each(count, datatype);
    Gather MPI_Gather mpi_gather_ mpi_gather_f08_ / MPI_Igather mpi_igather_ mpi_igather_f08_
        (
            data: buffer, count: count, datatype: datatype, room: buffer, room_count: other, room_type: other,
            root: count
        ), comm
        => |call| gathered(call, comm, root, count, datatype);
    Gather MPI_Gatherv mpi_gatherv_ mpi_gatherv_f08_ / MPI_Igatherv mpi_igatherv_ mpi_igatherv_f08_
        (
            data: buffer, count: count, datatype: datatype, room: buffer, room_counts: buffer, places: buffer,
            room_type: other, root: count
        ), comm
        => |call| gathered(call, comm, root, count, datatype);
    Scatter MPI_Scatter mpi_scatter_ mpi_scatter_f08_ / MPI_Iscatter mpi_iscatter_ mpi_iscatter_f08_
        (
            data: buffer, count: count, datatype: datatype, room: buffer, room_count: count, room_type: datatype,
            root: count
        ), comm
        => |call| scattered(call, comm, root, || bytes(count, datatype), || bytes(room_count, room_type));
    Scatter MPI_Scatterv mpi_scatterv_ mpi_scatterv_f08_ / MPI_Iscatterv mpi_iscatterv_ mpi_iscatterv_f08_
        (
            data: buffer, counts: buffer, places: buffer, datatype: datatype, room: buffer, room_count: count,
            room_type: datatype, root: count
        ), comm
        => |call| scattered_counts(call, comm, root, counts, datatype, 0);
    AllGather MPI_Allgather mpi_allgather_ mpi_allgather_f08_ / MPI_Iallgather mpi_iallgather_ mpi_iallgather_f08_
        (
            data: buffer, count: other, datatype: other, room: buffer, room_count: count, room_type: datatype
        ), comm
        => |call| each(room_count, room_type);
    AllGather MPI_Allgatherv mpi_allgatherv_ mpi_allgatherv_f08_ / MPI_Iallgatherv mpi_iallgatherv_ mpi_iallgatherv_f08_
        (
            data: buffer, count: count, datatype: datatype, room: buffer, room_counts: buffer, places: buffer,
            room_type: datatype
        ), comm
        => |call| given(call, comm, data, bytes(count, datatype), (room_counts, room_type));
    AllToAll MPI_Alltoall mpi_alltoall_ mpi_alltoall_f08_ / MPI_Ialltoall mpi_ialltoall_ mpi_ialltoall_f08_
        (
            data: buffer, count: other, datatype: other, room: buffer, room_count: count, room_type: datatype
        ), comm
        => |call| each(room_count, room_type);
    AllToAll MPI_Alltoallv mpi_alltoallv_ mpi_alltoallv_f08_ / MPI_Ialltoallv mpi_ialltoallv_ mpi_ialltoallv_f08_
        (
            data: buffer, counts: buffer, places: buffer, datatype: datatype, room: buffer, room_counts: buffer,
            room_places: buffer, room_type: datatype
        ), comm
        => |call| exchanged(call, comm, data, (counts, datatype), (room_counts, room_type));
    AllToAll MPI_Alltoallw mpi_alltoallw_ mpi_alltoallw_f08_ / MPI_Ialltoallw mpi_ialltoallw_ mpi_ialltoallw_f08_
        (
            data: buffer, counts: buffer, places: buffer, types: requests, room: buffer, room_counts: buffer,
            room_places: buffer, room_types: requests
        ), comm
        => |call| exchanged_types(call, comm, data, (counts, types), (room_counts, room_types));
    ReduceScatter MPI_Reduce_scatter mpi_reduce_scatter_ mpi_reduce_scatter_f08_
        / MPI_Ireduce_scatter mpi_ireduce_scatter_ mpi_ireduce_scatter_f08_
        (data: buffer, room: buffer, counts: buffer, datatype: datatype, operation: other), comm
        => |call| Shape::of(counted(call, comm, 0, counts, datatype).bytes, 0);
    ReduceScatter MPI_Reduce_scatter_block mpi_reduce_scatter_block_ mpi_reduce_scatter_block_f08_
        / MPI_Ireduce_scatter_block mpi_ireduce_scatter_block_ mpi_ireduce_scatter_block_f08_
        (data: buffer, room: buffer, count: count, datatype: datatype, operation: other), comm
        => |call| Shape::of(bytes(count, datatype) * call.size(comm) as u64, 0);
    Scan MPI_Scan mpi_scan_ mpi_scan_f08_ / MPI_Iscan mpi_iscan_ mpi_iscan_f08_
        (data: buffer, room: buffer, count: count, datatype: datatype, operation: other), comm
        => |call| each(count, datatype);
    Scan MPI_Exscan mpi_exscan_ mpi_exscan_f08_ / MPI_Iexscan mpi_iexscan_ mpi_iexscan_f08_
        (data: buffer, room: buffer, count: count, datatype: datatype, operation: other), comm
        => |call| each(count, datatype);
}
