//! Preloaded into the user-mode kernel: lets it run on processors with more registers than it knows.
//!
//! Model: linux.uml 6.1 keeps a guest process's vector registers in 2696 bytes, which is what a processor with
//! AVX-512 has. Where there are more (AMX: 11,008 bytes), the host reads out as much as is asked for, but takes back
//! all or nothing (`xstateregs_set`: EFAULT), and the kernel dies at its first process: "ptrace set fp regs failed,
//! errno = 14". This [`ptrace`] fills up what is too short with zeros, by which the registers that are missing are in
//! their initial state: no guest has them in use, for the guest's kernel does not know how to ask for them.
//!
//! It has no dependencies (the build script compiles it by itself), and keeps its buffer off the stack, which is a
//! kernel's.

use std::{
    ffi::{c_char, c_int, c_long, c_void},
    ptr::{copy_nonoverlapping, null_mut},
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering},
};

const SYS_PTRACE: c_long = 101;
const GETREGSET: c_int = 0x4204;
const SETREGSET: c_int = 0x4205;
/// The x86 extended state (`NT_X86_XSTATE`).
const XSTATE: c_int = 0x202;
/// The next definition in the order of search.
const NEXT: *mut c_void = -1_isize as *mut c_void;
/// More than any processor has today.
const LARGEST: usize = 64 << 10;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

type Ptrace = unsafe extern "C" fn(c_int, c_int, *mut c_void, *mut c_void) -> c_long;

/// `struct iovec`.
#[repr(C)]
struct Buffer {
    base: *mut u8,
    length: usize,
}

/// The C library's own; found at the first call.
static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Bytes that this machine's processor has; 0 as long as nobody has asked.
static WHOLE: AtomicUsize = AtomicUsize::new(0);
/// Where a short state is filled up. The kernel has one thread that sets registers.
static mut STATE: [u8; LARGEST] = [0; LARGEST];

/// `ptrace(2)`, which takes extended states that are too short.
///
/// # Safety
/// As the C library's; one thread at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ptrace(
    request: c_int,
    process: c_int,
    address: *mut c_void,
    data: *mut c_void,
) -> c_long {
    // The C library passes both as int.
    if request == SETREGSET && address as usize as c_int == XSTATE {
        // SAFETY: the caller's; `data` points to an iovec for this request.
        return unsafe { set_state(process, &*data.cast::<Buffer>()) };
    }
    let mut original = ORIGINAL.load(Ordering::Relaxed);
    if original.is_null() {
        // SAFETY: a string with an end.
        original = unsafe { dlsym(NEXT, c"ptrace".as_ptr()) };
        ORIGINAL.store(original, Ordering::Relaxed);
    }
    // SAFETY: the C library has a function of this name and type; it passes on what the caller answers for.
    unsafe { std::mem::transmute::<*mut c_void, Ptrace>(original)(request, process, address, data) }
}

/// # Safety
/// `state` must describe memory that may be written (GETREGSET) or read.
unsafe fn direct(request: c_int, process: c_int, state: *mut Buffer) -> c_long {
    // SAFETY: the caller's.
    unsafe {
        syscall(
            SYS_PTRACE,
            c_long::from(request),
            c_long::from(process),
            c_long::from(XSTATE),
            state,
        )
    }
}

/// # Safety
/// `state` must lie in memory that may be read; one thread at a time.
unsafe fn set_state(process: c_int, state: &Buffer) -> c_long {
    let place = (&raw mut STATE).cast::<u8>();
    // SAFETY: the static is this thread's, as the caller says.
    unsafe {
        let mut whole = WHOLE.load(Ordering::Relaxed);
        if whole == 0 {
            let mut all = Buffer {
                base: place,
                length: LARGEST,
            };
            if direct(GETREGSET, process, &raw mut all) != 0 {
                return -1;
            }
            whole = all.length;
            WHOLE.store(whole, Ordering::Relaxed);
        }
        let mut given = Buffer {
            base: state.base,
            length: state.length,
        };
        if state.length < whole {
            copy_nonoverlapping(state.base, place, state.length);
            place.add(state.length).write_bytes(0, whole - state.length);
            given = Buffer {
                base: place,
                length: whole,
            };
        }
        direct(SETREGSET, process, &raw mut given)
    }
}

#[cfg(test)]
mod tests {
    use nix::{
        sys::{
            signal::{Signal, kill, raise},
            wait::waitpid,
        },
        unistd::{ForkResult, fork},
    };

    use super::*;

    /// Legacy area and header: every x86-64 processor has more.
    const SHORT: usize = 576;
    const TRACEME: c_long = 0;

    #[test]
    fn a_short_state_is_taken() {
        // SAFETY: the child calls only what may be called after fork.
        let child = match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                // SAFETY: asks to be traced; ends the process without unwinding into the test runner.
                unsafe {
                    syscall(SYS_PTRACE, TRACEME, 0, 0, 0);
                    let _ = raise(Signal::SIGSTOP);
                    nix::libc::_exit(0)
                }
            }
            ForkResult::Parent { child } => child,
        };
        waitpid(child, None).unwrap();
        let process = child.as_raw();
        let mut bytes = vec![0; SHORT];
        let mut state = Buffer {
            base: bytes.as_mut_ptr(),
            length: SHORT,
        };
        let place = (&raw mut state).cast();
        // SAFETY: the state outlives the calls, and no other thread calls.
        let (got, refused, set) = unsafe {
            let got = ptrace(GETREGSET, process, XSTATE as *mut c_void, place);
            let refused = syscall(SYS_PTRACE, SETREGSET, process as c_long, XSTATE, place);
            (
                got,
                refused,
                ptrace(SETREGSET, process, XSTATE as *mut c_void, place),
            )
        };
        kill(child, Signal::SIGKILL).unwrap();
        waitpid(child, None).unwrap();
        assert_eq!((got, refused, set), (0, -1, 0));
    }
}
