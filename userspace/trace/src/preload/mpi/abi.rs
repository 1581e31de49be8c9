//! The two binary interfaces that MPI libraries have, told apart at run time: there is no `mpi.h` here.
//!
//! | | Open MPI | MPICH and what is compatible with it |
//! |---|---|---|
//! | handles | pointers | 32-bit numbers |
//! | MPI_Status | source, tag, error, cancelled, count | count, count and cancelled, source, tag, error |
//! | MPI_STATUS_IGNORE | null | 1 |
//! | MPI_COMM_WORLD | `&ompi_mpi_comm_world` | 0x44000000 |

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::preload::sys::{self, Next};

/// A handle as C passes it.
pub(crate) type Handle = usize;
/// Any pointer that is passed on.
pub(crate) type Address = *mut c_void;

/// Which binary interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abi {
    OpenMpi { world: Handle, null_request: Handle },
    Mpich,
}

/// Bytes of a status, at most.
pub(crate) const STATUS: usize = 24;

impl Abi {
    /// That of the library in this process.
    pub(crate) fn of_process() -> Self {
        static ABI: OnceLock<Abi> = OnceLock::new();
        *ABI.get_or_init(|| {
            let world = sys::variable(c"ompi_mpi_comm_world").addr();
            if world == 0 {
                Self::Mpich
            } else {
                Self::OpenMpi {
                    world,
                    null_request: sys::variable(c"ompi_request_null").addr(),
                }
            }
        })
    }

    pub(crate) fn world(self) -> Handle {
        match self {
            Self::OpenMpi { world, .. } => world,
            Self::Mpich => 0x4400_0000,
        }
    }

    /// A handle as it was passed: of 32 bits, the others may be anything.
    pub(crate) fn handle(self, passed: Handle) -> Handle {
        match self {
            Self::OpenMpi { .. } => passed,
            Self::Mpich => passed & 0xffff_ffff,
        }
    }

    pub(crate) fn is_null_request(self, request: Handle) -> bool {
        match self {
            Self::OpenMpi { null_request, .. } => request == 0 || request == null_request,
            Self::Mpich => request == 0x2c00_0000,
        }
    }

    /// MPI_COMM_NULL: no communicator resulted.
    pub(crate) fn is_null_communicator(self, communicator: Handle) -> bool {
        static NULL: OnceLock<Handle> = OnceLock::new();
        match self {
            Self::OpenMpi { .. } => {
                let null = *NULL.get_or_init(|| sys::variable(c"ompi_mpi_comm_null").addr());
                communicator == 0 || communicator == null
            }
            Self::Mpich => communicator == 0x0400_0000,
        }
    }

    pub(crate) fn null_process(self) -> c_int {
        match self {
            Self::OpenMpi { .. } => -2,
            Self::Mpich => -1,
        }
    }

    pub(crate) fn is_in_place(self, buffer: Address) -> bool {
        match self {
            Self::OpenMpi { .. } => buffer.addr() == 1,
            Self::Mpich => buffer.addr() == usize::MAX,
        }
    }

    fn handle_size(self) -> usize {
        match self {
            Self::OpenMpi { .. } => size_of::<usize>(),
            Self::Mpich => size_of::<c_int>(),
        }
    }

    pub(crate) fn status_size(self) -> usize {
        match self {
            Self::OpenMpi { .. } => STATUS,
            Self::Mpich => 20,
        }
    }

    /// MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE.
    pub(crate) fn ignores(self, status: Address) -> bool {
        status.addr() == usize::from(self == Self::Mpich)
    }

    /// Source and tag of a status; none if it is that of a cancelled receive.
    ///
    /// # Safety
    /// The status is of this interface and filled in.
    pub(crate) unsafe fn source_and_tag(self, status: Address) -> Option<(c_int, c_int)> {
        let words = status.cast::<c_int>();
        let (source, tag, cancelled) = match self {
            Self::OpenMpi { .. } => (0, 1, 3),
            Self::Mpich => (2, 3, 1),
        };
        // SAFETY: every index is inside the status.
        let (source, tag, cancelled) = unsafe {
            (
                words.add(source).read_unaligned(),
                words.add(tag).read_unaligned(),
                words.add(cancelled).read_unaligned(),
            )
        };
        (cancelled & 1 == 0).then_some((source, tag))
    }

    /// The `index`-th handle of an array.
    ///
    /// # Safety
    /// The array has more handles than that.
    pub(crate) unsafe fn handle_at(self, array: Address, index: usize) -> Handle {
        // SAFETY: as the caller says.
        unsafe {
            let address = array.byte_add(index * self.handle_size());
            match self {
                Self::OpenMpi { .. } => address.cast::<usize>().read_unaligned(),
                Self::Mpich => address.cast::<u32>().read_unaligned() as usize,
            }
        }
    }
}

/// Functions of the library that hooks ask. They are the profiling ones, which no hook sees.
macro_rules! asked {
    ($($(#[$meta:meta])* fn $name:ident = $symbol:literal ($($argument:ident: $type:ty),*) -> $result:ty, or $otherwise:expr;)*) => {$(
        $(#[$meta])*
        pub(crate) fn $name($($argument: $type),*) -> $result {
            static NEXT: Next = Next::new(concat!($symbol, "\0"));
            let function = NEXT.address();
            if function.is_null() {
                return $otherwise;
            }
            // SAFETY: the symbol of this name has this signature in every MPI library, handles being passed in a
            // register whatever their size.
            unsafe {
                let function: unsafe extern "C" fn($($type),*) -> $result = std::mem::transmute(function);
                function($($argument),*)
            }
        }
    )*};
}

asked! {
    fn comm_rank = "PMPI_Comm_rank"(comm: Handle, rank: *mut c_int) -> c_int, or 1;
    fn comm_size = "PMPI_Comm_size"(comm: Handle, size: *mut c_int) -> c_int, or 1;
    fn comm_test_inter = "PMPI_Comm_test_inter"(comm: Handle, flag: *mut c_int) -> c_int, or 1;
    fn comm_group = "PMPI_Comm_group"(comm: Handle, group: *mut Handle) -> c_int, or 1;
    fn comm_remote_group = "PMPI_Comm_remote_group"(comm: Handle, group: *mut Handle) -> c_int, or 1;
    fn group_free = "PMPI_Group_free"(group: *mut Handle) -> c_int, or 1;
    fn group_size = "PMPI_Group_size"(group: Handle, size: *mut c_int) -> c_int, or 1;
    fn group_translate_ranks = "PMPI_Group_translate_ranks"(
        group: Handle, count: c_int, ranks: *const c_int, other: Handle, translated: *mut c_int
    ) -> c_int, or 1;
    fn type_size = "PMPI_Type_size"(datatype: Handle, size: *mut c_int) -> c_int, or 1;
    /// Where the function is missing, handles are the same in both languages.
    fn comm_from_fortran = "PMPI_Comm_f2c"(comm: Handle) -> Handle, or comm;
    fn type_from_fortran = "PMPI_Type_f2c"(datatype: Handle) -> Handle, or datatype;
    fn request_from_fortran = "PMPI_Request_f2c"(request: Handle) -> Handle, or request;
    fn message_from_fortran = "PMPI_Message_f2c"(message: Handle) -> Handle, or message;
}

/// Bytes of `count` elements.
pub(crate) fn bytes(count: c_int, datatype: Handle) -> u64 {
    let mut size = 0;
    if count <= 0 || type_size(datatype, &raw mut size) != 0 {
        return 0;
    }
    u64::from(count.unsigned_abs()) * u64::from(size.max(0).unsigned_abs())
}

/// Whether a Fortran program passes this address for "ignore".
pub(crate) fn ignored_by_fortran(status: Address) -> bool {
    static IGNORED: OnceLock<[usize; 10]> = OnceLock::new();
    let ignored = IGNORED.get_or_init(|| {
        // Open MPI's common blocks under every compiler's name for them; MPICH's variables that hold theirs.
        let commons = [
            c"mpi_fortran_status_ignore_",
            c"mpi_fortran_statuses_ignore_",
            c"mpi_fortran_status_ignore",
            c"mpi_fortran_statuses_ignore",
            c"mpi_fortran_status_ignore__",
            c"mpi_fortran_statuses_ignore__",
            c"MPI_FORTRAN_STATUS_IGNORE",
            c"MPI_FORTRAN_STATUSES_IGNORE",
        ];
        let variables = [c"MPI_F_STATUS_IGNORE", c"MPI_F_STATUSES_IGNORE"];
        let mut addresses = [0; 10];
        for (address, name) in addresses.iter_mut().zip(commons) {
            *address = sys::variable(name).addr();
        }
        for (address, name) in addresses[8..].iter_mut().zip(variables) {
            let variable = sys::variable(name).cast::<usize>();
            if !variable.is_null() {
                // SAFETY: an exported pointer variable.
                *address = unsafe { variable.read() };
            }
        }
        addresses
    });
    status.is_null() || ignored.contains(&status.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_MPI: Abi = Abi::OpenMpi {
        world: 64,
        null_request: 128,
    };

    #[test]
    fn statuses() {
        let mut status: [c_int; 6] = [3, 7, 0, 0, 8, 0];
        let read = |abi: Abi, status: &mut [c_int; 6]| {
            // SAFETY: six words are a status of either kind.
            unsafe { abi.source_and_tag(status.as_mut_ptr().cast()) }
        };
        assert_eq!(read(OPEN_MPI, &mut status), Some((3, 7)));
        status[3] = 1;
        assert_eq!(read(OPEN_MPI, &mut status), None);
        let mut status: [c_int; 6] = [8, 0, 3, 7, 0, 0];
        assert_eq!(read(Abi::Mpich, &mut status), Some((3, 7)));
        status[1] = 1;
        assert_eq!(read(Abi::Mpich, &mut status), None);
    }

    #[test]
    fn handles() {
        let mut wide: [usize; 2] = [5, 6];
        let mut narrow: [u32; 2] = [5, 6];
        // SAFETY: both arrays have two handles.
        unsafe {
            assert_eq!(OPEN_MPI.handle_at(wide.as_mut_ptr().cast(), 1), 6);
            assert_eq!(Abi::Mpich.handle_at(narrow.as_mut_ptr().cast(), 1), 6);
        }
        assert_eq!(Abi::Mpich.handle(0x7_4400_0000), 0x4400_0000);
        assert!(OPEN_MPI.ignores(std::ptr::null_mut()) && !Abi::Mpich.ignores(std::ptr::null_mut()));
    }
}
