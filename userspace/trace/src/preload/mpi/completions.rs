//! Waits and tests: what is complete, in the order of the requests.
#![allow(non_snake_case, reason = "the names are MPI's")]

use std::ffi::c_int;

use super::abi::Address;
use super::call::{Call, Language, Spare};
use super::define::{c_type, define, passed, value};

/// An int that a call has set.
fn set(result: Address) -> c_int {
    // SAFETY: a call that succeeded has set it.
    unsafe { result.cast::<c_int>().read() }
}

/// All of `count` requests are complete.
fn all(call: &Call, spare: &Spare, count: c_int) {
    for index in 0..usize::try_from(count).unwrap_or(0) {
        call.complete(spare, index, index);
    }
}

/// The request of this index is complete; Fortran counts from 1.
fn any(call: &Call, spare: &Spare, index: c_int, language: Language) {
    if let Ok(index) = usize::try_from(index - c_int::from(language == Language::Fortran)) {
        call.complete(spare, index, 0);
    }
}

/// Those of `count` indices are complete.
fn some(call: &Call, spare: &Spare, count: c_int, indices: Address, language: Language) {
    for place in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the call has set that many.
        let index = unsafe { indices.cast::<c_int>().add(place).read() };
        if let Ok(index) = usize::try_from(index - c_int::from(language == Language::Fortran)) {
            call.complete(spare, index, place);
        }
    }
}

define! {
    MPI_Wait mpi_wait_ mpi_wait_f08_ (request: requests, status: status)
        before |call, language| Spare::none().requests(request, 1).statuses(language, call.abi, status, 1);
        => |call, spare| all(call, spare, 1);
    MPI_Waitall mpi_waitall_ mpi_waitall_f08_ (count: count, requests: requests, statuses: status)
        before |call, language| {
            Spare::none().requests(requests, count).statuses(language, call.abi, statuses, count)
        };
        => |call, spare| all(call, spare, count);
    MPI_Waitany mpi_waitany_ mpi_waitany_f08_ (count: count, requests: requests, index: result, status: status)
        before |call, language| Spare::none().requests(requests, count).statuses(language, call.abi, status, 1);
        => |call, spare| any(call, spare, set(index), requests.language);
    MPI_Waitsome mpi_waitsome_ mpi_waitsome_f08_
        (count: count, requests: requests, done: result, indices: buffer, statuses: status)
        before |call, language| {
            Spare::none().requests(requests, count).statuses(language, call.abi, statuses, count)
        };
        => |call, spare| some(call, spare, set(done), indices, requests.language);
    MPI_Test mpi_test_ mpi_test_f08_ (request: requests, flag: result, status: status)
        before |call, language| Spare::none().requests(request, 1).statuses(language, call.abi, status, 1);
        => |call, spare| if set(flag) != 0 { all(call, spare, 1) };
    MPI_Testall mpi_testall_ mpi_testall_f08_
        (count: count, requests: requests, flag: result, statuses: status)
        before |call, language| {
            Spare::none().requests(requests, count).statuses(language, call.abi, statuses, count)
        };
        => |call, spare| if set(flag) != 0 { all(call, spare, count) };
    MPI_Testany mpi_testany_ mpi_testany_f08_
        (count: count, requests: requests, index: result, flag: result, status: status)
        before |call, language| Spare::none().requests(requests, count).statuses(language, call.abi, status, 1);
        => |call, spare| if set(flag) != 0 { any(call, spare, set(index), requests.language) };
    MPI_Testsome mpi_testsome_ mpi_testsome_f08_
        (count: count, requests: requests, done: result, indices: buffer, statuses: status)
        before |call, language| {
            Spare::none().requests(requests, count).statuses(language, call.abi, statuses, count)
        };
        => |call, spare| some(call, spare, set(done), indices, requests.language);
}
