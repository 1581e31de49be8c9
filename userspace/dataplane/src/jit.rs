//! Whether this kernel compiles programs: the interpreter refuses callbacks (`check_func_call`,
//! "callbacks are not allowed in non-JITed programs").
//!
//! `net.core.bpf_jit_enable` would say it, but only in the initial network namespace. So a program of
//! two instructions is loaded and looked at.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

const PROG_LOAD: libc::c_int = 5;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const SOCKET_FILTER: u32 = 1;

/// The head of `bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct Load {
    kind: u32,
    len: u32,
    instructions: u64,
    license: u64,
}

/// `bpf_attr` for `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct Query {
    fd: u32,
    len: u32,
    info: u64,
}

/// The head of `bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct Info {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    compiled_len: u32,
    translated_len: u32,
}

/// Whether a program that is loaded now is compiled; `false` also if none can be loaded.
#[must_use]
pub fn compiles() -> bool {
    // r0 = 0; exit
    let instructions: [u64; 2] = [0xb7, 0x95];
    let license = c"GPL";
    let load = Load {
        kind: SOCKET_FILTER,
        len: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
    };
    let Some(fd) = bpf(PROG_LOAD, &load) else {
        return false;
    };
    // SAFETY: the kernel has just given out this descriptor, and nobody else has it.
    let program = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut info = Info::default();
    let query = Query {
        fd: program.as_raw_fd().cast_unsigned(),
        len: size_of::<Info>() as u32,
        info: (&raw mut info) as u64,
    };
    bpf(OBJ_GET_INFO_BY_FD, &query).is_some() && info.compiled_len != 0
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> Option<libc::c_int> {
    // SAFETY: the attributes are of the length given, and what they point to outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<T>()) };
    libc::c_int::try_from(result).ok().filter(|&result| result >= 0)
}
