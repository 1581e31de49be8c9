//! How an MPI function is interposed in C and in Fortran at once.
//!
//! Each parameter has a *sort*, which says how either language passes it, and what its value is:
//!
//! | sort | C | Fortran | value |
//! |---|---|---|---|
//! | `buffer`, `counts`, `types`, `status` | pointer | the same | the pointer |
//! | `count` (rank, tag, root too) | int | pointer to it | int |
//! | `datatype`, `comm` | handle | pointer to an integer | C's handle |
//! | `other` | handle or int | pointer | none |
//! | `requests`, `message` | pointer to handles | pointer to integers | [`Requests`](super::call::Requests) |
//! | `result` | pointer to int | the same | the pointer |
//!
//! A Fortran procedure has one more parameter, the error code, which may be absent (`mpi_f08`).

/// The type of a parameter in C.
macro_rules! c_type {
    (count) => {
        std::ffi::c_int
    };
    (datatype) => {
        $crate::preload::mpi::abi::Handle
    };
    (comm) => {
        $crate::preload::mpi::abi::Handle
    };
    (other) => {
        usize
    };
    ($pointer:ident) => {
        $crate::preload::mpi::abi::Address
    };
}

/// The value of a parameter.
macro_rules! value {
    (C, count, $it:expr) => {
        $it
    };
    (C, datatype, $it:expr) => {
        $it
    };
    (C, comm, $it:expr) => {
        $it
    };
    (Fortran, count, $it:expr) => {
        // SAFETY: Fortran passes the address of an integer.
        unsafe { $it.cast::<std::ffi::c_int>().read() }
    };
    (Fortran, datatype, $it:expr) => {
        $crate::preload::mpi::abi::type_from_fortran(
            // SAFETY: as above.
            unsafe { $it.cast::<std::ffi::c_int>().read() } as isize as usize,
        )
    };
    (Fortran, comm, $it:expr) => {
        $crate::preload::mpi::abi::comm_from_fortran(
            // SAFETY: as above.
            unsafe { $it.cast::<std::ffi::c_int>().read() } as isize as usize,
        )
    };
    ($language:ident, requests, $it:expr) => {
        $crate::preload::mpi::call::Requests {
            language: $crate::preload::mpi::call::Language::$language,
            array: $it,
            are_messages: false,
        }
    };
    ($language:ident, message, $it:expr) => {
        $crate::preload::mpi::call::Requests {
            language: $crate::preload::mpi::call::Language::$language,
            array: $it,
            are_messages: true,
        }
    };
    ($language:ident, $pointer:ident, $it:expr) => {
        $it
    };
}

/// What is passed on for a parameter.
macro_rules! passed {
    ($spare:ident, $recorded:ident, status, $it:expr) => {
        $spare.pointer($it, $recorded)
    };
    ($spare:ident, $recorded:ident, $sort:ident, $it:expr) => {
        $it
    };
}

/// Defines the hooks of one function: `C name, Fortran name, Fortran 2008 name (parameter: sort, …)`, what to
/// keep `before` the call, and what to record once it has succeeded.
macro_rules! define {
    ($(
        $c:ident $fortran:ident $f08:ident ($($argument:ident: $sort:ident),* $(,)?)
        $(before |$before:ident, $language:ident| $keep:expr;)?
        => |$call:ident, $spare:ident| $record:expr;
    )*) => {$(
        $crate::preload::hook::hook! {
            fn $c(next, $($argument: c_type!($sort)),*) -> std::ffi::c_int {
                let call = $crate::preload::mpi::call::Call::enter();
                let recorded = call.is_recorded();
                #[allow(unused_mut, unused_variables, reason = "not every function has a status")]
                let mut spare = define!(@keep C, call, recorded, ($($argument: $sort),*) $(, $before, $language, $keep)?);
                let code = next($(passed!(spare, recorded, $sort, $argument)),*);
                if recorded && code == 0 {
                    define!(@record C, call, spare, ($($argument: $sort),*), $call, $spare, $record);
                }
                code
            }
            fn $fortran(next, $($argument: $crate::preload::mpi::abi::Address,)* error: *mut std::ffi::c_int) -> () {
                define!(@fortran next, error, ($($argument: $sort),*), $call, $spare, $record $(, $before, $language, $keep)?);
            }
            fn $f08(next, $($argument: $crate::preload::mpi::abi::Address,)* error: *mut std::ffi::c_int) -> () {
                define!(@fortran next, error, ($($argument: $sort),*), $call, $spare, $record $(, $before, $language, $keep)?);
            }
        }
    )*};
    (@fortran $next:ident, $error:ident, ($($argument:ident: $sort:ident),*), $c:ident, $s:ident, $record:expr $(, $before:ident, $language:ident, $keep:expr)?) => {
        let call = $crate::preload::mpi::call::Call::enter();
        let recorded = call.is_recorded();
        #[allow(unused_mut, unused_variables, reason = "not every function has a status")]
        let mut spare = define!(@keep Fortran, call, recorded, ($($argument: $sort),*) $(, $before, $language, $keep)?);
        $next($(passed!(spare, recorded, $sort, $argument),)* $error);
        // SAFETY: the library has set the code, where the caller asks for one.
        if recorded && ($error.is_null() || unsafe { *$error } == 0) {
            define!(@record Fortran, call, spare, ($($argument: $sort),*), $c, $s, $record);
        }
    };
    (@keep $lang:ident, $call:ident, $recorded:ident, ($($argument:ident: $sort:ident),*)) => {
        $crate::preload::mpi::call::Spare::none()
    };
    (@keep $lang:ident, $call:ident, $recorded:ident, ($($argument:ident: $sort:ident),*), $before:ident, $language:ident, $keep:expr) => {
        if $recorded {
            #[allow(unused_variables, reason = "few functions keep all")]
            let ($before, $language) = (&$call, $crate::preload::mpi::call::Language::$lang);
            $(
                #[allow(unused_variables, reason = "as above")]
                let $argument = value!($lang, $sort, $argument);
            )*
            $keep
        } else {
            $crate::preload::mpi::call::Spare::none()
        }
    };
    (@record $lang:ident, $made:ident, $had:ident, ($($argument:ident: $sort:ident),*), $call:ident, $spare:ident, $record:expr) => {
        {
            #[allow(unused_variables, reason = "few functions need it")]
            let ($call, $spare) = (&$made, &$had);
            $(
                #[allow(unused_variables, reason = "not every parameter tells something")]
                let $argument = value!($lang, $sort, $argument);
            )*
            $record
        }
    };
}

pub(crate) use {c_type, define, passed, value};
