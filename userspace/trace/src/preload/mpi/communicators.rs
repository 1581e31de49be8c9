//! Beginning, end, and what makes and frees communicators. A communicator is announced when it is made, so
//! that all its members count those of the same members in one order.
#![allow(non_snake_case, reason = "the names are MPI's")]

use std::ffi::c_int;

use super::abi::{self, Abi, Address, Handle};
use super::call::{Call, Language, Spare};
use super::define::{c_type, define, passed, value};
use crate::preload::hook::hook;

/// The communicator that a call has stored.
fn stored(language: Language, place: Address) -> Handle {
    match language {
        // SAFETY: a call that succeeded has stored a handle.
        Language::C => unsafe { Abi::of_process().handle_at(place, 0) },
        Language::Fortran => {
            // SAFETY: as above; Fortran's are integers.
            let number = unsafe { place.cast::<c_int>().read() };
            abi::comm_from_fortran(number as isize as Handle)
        }
    }
}

/// Announces the communicator that a parameter of sort `requests` points to.
fn made(call: &Call, comm: super::call::Requests) {
    call.announce(stored(comm.language, comm.array));
}

hook! {
    fn MPI_Init(next, count: Address, arguments: Address) -> c_int {
        let call = Call::enter();
        let code = next(count, arguments);
        if code == 0 {
            call.initialized();
        }
        code
    }
    fn MPI_Init_thread(next, count: Address, arguments: Address, required: c_int, provided: Address) -> c_int {
        let call = Call::enter();
        let code = next(count, arguments, required, provided);
        if code == 0 {
            call.initialized();
        }
        code
    }
    fn MPI_Finalize(next) -> c_int {
        let call = Call::enter();
        call.finalizing();
        next()
    }
    // Its further arguments are the profiler's own business, and nobody else's.
    fn MPI_Pcontrol(next, level: c_int) -> c_int {
        let call = Call::enter();
        call.controlled(level);
        next(level)
    }
    fn mpi_pcontrol_(next, level: Address) -> () {
        let call = Call::enter();
        // SAFETY: Fortran passes the address of an integer.
        call.controlled(unsafe { level.cast::<c_int>().read() });
        next(level);
    }
    fn mpi_init_(next, error: Address) -> () {
        let call = Call::enter();
        next(error);
        call.initialized();
    }
    fn mpi_init_f08_(next, error: Address) -> () {
        let call = Call::enter();
        next(error);
        call.initialized();
    }
    fn mpi_init_thread_(next, required: Address, provided: Address, error: Address) -> () {
        let call = Call::enter();
        next(required, provided, error);
        call.initialized();
    }
    fn mpi_init_thread_f08_(next, required: Address, provided: Address, error: Address) -> () {
        let call = Call::enter();
        next(required, provided, error);
        call.initialized();
    }
    fn mpi_finalize_(next, error: Address) -> () {
        let call = Call::enter();
        call.finalizing();
        next(error);
    }
    fn mpi_finalize_f08_(next, error: Address) -> () {
        let call = Call::enter();
        call.finalizing();
        next(error);
    }
}

define! {
    MPI_Comm_dup mpi_comm_dup_ mpi_comm_dup_f08_ (comm: comm, new: requests)
        => |call, _spare| made(call, new);
    MPI_Comm_dup_with_info mpi_comm_dup_with_info_ mpi_comm_dup_with_info_f08_
        (comm: comm, info: other, new: requests)
        => |call, _spare| made(call, new);
    MPI_Comm_create mpi_comm_create_ mpi_comm_create_f08_ (comm: comm, group: other, new: requests)
        => |call, _spare| made(call, new);
    MPI_Comm_create_group mpi_comm_create_group_ mpi_comm_create_group_f08_
        (comm: comm, group: other, tag: count, new: requests)
        => |call, _spare| made(call, new);
    MPI_Comm_split mpi_comm_split_ mpi_comm_split_f08_ (comm: comm, color: count, key: count, new: requests)
        => |call, _spare| made(call, new);
    MPI_Comm_split_type mpi_comm_split_type_ mpi_comm_split_type_f08_
        (comm: comm, kind: count, key: count, info: other, new: requests)
        => |call, _spare| made(call, new);
    MPI_Cart_create mpi_cart_create_ mpi_cart_create_f08_
        (comm: comm, dimensions: count, sizes: counts, periods: counts, reorder: other, new: requests)
        => |call, _spare| made(call, new);
    MPI_Cart_sub mpi_cart_sub_ mpi_cart_sub_f08_ (comm: comm, kept: counts, new: requests)
        => |call, _spare| made(call, new);
    MPI_Graph_create mpi_graph_create_ mpi_graph_create_f08_
        (comm: comm, nodes: count, index: counts, edges: counts, reorder: other, new: requests)
        => |call, _spare| made(call, new);
    MPI_Intercomm_merge mpi_intercomm_merge_ mpi_intercomm_merge_f08_ (comm: comm, high: other, new: requests)
        => |call, _spare| made(call, new);
    MPI_Comm_free mpi_comm_free_ mpi_comm_free_f08_ (comm: buffer)
        before |call, language| { call.freed(stored(language, comm)); Spare::none() };
        => |_call, _spare| ();
}
