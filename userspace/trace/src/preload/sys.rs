//! The C library's functions that the hooks need. Declared here, not by a crate, because the shared object
//! is compiled on its own. Where a hook of ours has the same name, the system call is made directly.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Seconds and nanoseconds, as the kernel has them.
#[repr(C)]
#[derive(Default)]
struct Timespec {
    seconds: i64,
    nanos: c_long,
}

/// Room for any IP socket address.
#[repr(C, align(8))]
pub(crate) struct SocketAddress {
    pub(crate) bytes: [u8; 128],
}

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn getenv(name: *const c_char) -> *const c_char;
    fn gethostname(name: *mut c_char, size: usize) -> c_int;
    fn getpeername(socket: c_int, address: *mut SocketAddress, size: *mut c_uint) -> c_int;
    fn getpid() -> c_int;
    fn getsockname(socket: c_int, address: *mut SocketAddress, size: *mut c_uint) -> c_int;
    fn getsockopt(socket: c_int, level: c_int, option: c_int, value: *mut c_void, size: *mut c_uint)
    -> c_int;
    fn mmap(
        address: *mut c_void,
        size: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(address: *mut c_void, size: usize) -> c_int;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
    fn pthread_key_create(key: *mut c_uint, destructor: Option<extern "C" fn(*mut c_void)>) -> c_int;
    fn pthread_setspecific(key: c_uint, value: *const c_void) -> c_int;
    fn readlink(path: *const c_char, buffer: *mut c_char, size: usize) -> isize;
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
    static program_invocation_short_name: *const c_char;
}

const CLOCK_MONOTONIC: c_int = 1;
const CLOCK_THREAD_CPUTIME_ID: c_int = 3;

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const CLOSE: i64 = 3;
    pub(super) const NANOSLEEP: i64 = 35;
    pub(super) const FTRUNCATE: i64 = 77;
    pub(super) const GETTID: i64 = 186;
    pub(super) const OPENAT: i64 = 257;
}
#[cfg(not(target_arch = "x86_64"))]
mod number {
    // The numbers that new architectures share (asm-generic/unistd.h).
    pub(super) const CLOSE: i64 = 57;
    pub(super) const NANOSLEEP: i64 = 101;
    pub(super) const FTRUNCATE: i64 = 46;
    pub(super) const GETTID: i64 = 178;
    pub(super) const OPENAT: i64 = 56;
}

/// Keeps the caller's `errno` over what a hook does.
pub(crate) struct Errno(c_int);

impl Errno {
    pub(crate) fn save() -> Self {
        // SAFETY: the location is this thread's and always valid.
        Self(unsafe { *__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *__errno_location() = self.0 }
    }
}

fn clock(which: c_int) -> u64 {
    let mut time = Timespec::default();
    // SAFETY: `time` is valid for writing.
    unsafe { clock_gettime(which, &raw mut time) };
    (time.seconds as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.nanos as u64)
}

/// CLOCK_MONOTONIC in ns.
pub(crate) fn monotonic() -> u64 {
    clock(CLOCK_MONOTONIC)
}

/// This thread's CPU time in ns.
pub(crate) fn thread_cpu() -> u64 {
    clock(CLOCK_THREAD_CPUTIME_ID)
}

pub(crate) fn pid() -> i32 {
    // SAFETY: always succeeds.
    unsafe { getpid() }
}

pub(crate) fn thread() -> u32 {
    // SAFETY: always succeeds.
    unsafe { syscall(number::GETTID) as u32 }
}

pub(crate) fn sleep(nanos: i64) {
    let time = Timespec { seconds: 0, nanos };
    // SAFETY: the time is valid; the rest of a sleep that a signal ends is not wanted.
    unsafe { syscall(number::NANOSLEEP, &raw const time, 0_usize) };
}

/// A new file of `size` bytes, mapped and shared; null if that cannot be.
pub(crate) fn map_new(path: &CStr, size: usize) -> *mut c_void {
    const AT_FDCWD: c_int = -100;
    /// O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC.
    const FLAGS: c_int = 0o2 | 0o100 | 0o200 | 0o2_000_000;
    const READ_AND_WRITE: c_int = 1 | 2;
    const SHARED: c_int = 1;
    // SAFETY: the path ends with zero, the other arguments are numbers.
    let file = unsafe { syscall(number::OPENAT, AT_FDCWD, path.as_ptr(), FLAGS, 0o600 as c_uint) } as c_int;
    if file < 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: a file of our own; a new mapping overlaps nothing.
    let mapped = unsafe {
        if syscall(number::FTRUNCATE, file, size) == 0 {
            mmap(std::ptr::null_mut(), size, READ_AND_WRITE, SHARED, file, 0)
        } else {
            std::ptr::null_mut()
        }
    };
    // SAFETY: opened above.
    unsafe { syscall(number::CLOSE, file) };
    if mapped.addr() == usize::MAX {
        std::ptr::null_mut()
    } else {
        mapped
    }
}

/// Undoes [`map_new`] in this process; the file stays.
pub(crate) fn unmap(address: *mut c_void, size: usize) {
    // SAFETY: mapped by `map_new`, and the caller uses it no more.
    unsafe { munmap(address, size) };
}

/// An environment variable; it is not freed or changed by this library.
pub(crate) fn environment(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with zero.
    let value = unsafe { getenv(name.as_ptr()) };
    // SAFETY: a value that is there ends with zero and lies in the process's environment.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// Runs in the child of every fork.
pub(crate) fn at_fork(child: extern "C" fn()) {
    // SAFETY: the function lives as long as this library.
    unsafe { pthread_atfork(None, None, Some(child)) };
}

/// Runs at the end of every thread that is marked with the key; none if the process has too many keys.
pub(crate) fn at_thread_end(end: extern "C" fn(*mut c_void)) -> Option<c_uint> {
    let mut key = 0;
    // SAFETY: `key` is valid for writing, and the function lives as long as this library.
    let code = unsafe { pthread_key_create(&raw mut key, Some(end)) };
    (code == 0).then_some(key)
}

/// Marks this thread.
pub(crate) fn mark_thread(key: c_uint) {
    // SAFETY: the key exists; the value only has to differ from null.
    unsafe { pthread_setspecific(key, std::ptr::without_provenance(1)) };
}

/// The number in a link such as `net:[4026531840]`; 0 if there is none.
pub(crate) fn namespace(path: &CStr) -> u64 {
    let mut text = [0_u8; 64];
    // SAFETY: the buffer is as long as said.
    let length = unsafe { readlink(path.as_ptr(), text.as_mut_ptr().cast(), text.len()) };
    let Ok(length) = usize::try_from(length) else {
        return 0;
    };
    text[..length]
        .iter()
        .filter(|byte| byte.is_ascii_digit())
        .fold(0, |number, byte| number * 10 + u64::from(byte - b'0'))
}

/// The name of this machine.
pub(crate) fn host_name() -> [u8; 64] {
    let mut name = [0_u8; 64];
    // SAFETY: the buffer is as long as said, and its last byte stays zero.
    unsafe { gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    name
}

/// The name of this process's program, as it was called.
pub(crate) fn process_name() -> [u8; 32] {
    let mut name = [0_u8; 32];
    // SAFETY: the C library sets it before it runs any constructor, and it ends with zero.
    let called = unsafe { program_invocation_short_name };
    if !called.is_null() {
        // SAFETY: as above.
        let called = unsafe { CStr::from_ptr(called) }.to_bytes();
        let length = called.len().min(name.len() - 1);
        name[..length].copy_from_slice(&called[..length]);
    }
    name
}

/// An integer option of a socket at SOL_SOCKET.
pub(crate) fn socket_option<T: Default>(socket: c_int, option: c_int) -> Option<T> {
    const SOL_SOCKET: c_int = 1;
    let mut value = T::default();
    let mut size = size_of::<T>() as c_uint;
    // SAFETY: `value` has `size` bytes, and the options asked for are integers.
    let code = unsafe { getsockopt(socket, SOL_SOCKET, option, (&raw mut value).cast(), &raw mut size) };
    (code == 0).then_some(value)
}

/// A socket's own address, or its peer's.
pub(crate) fn socket_address(socket: c_int, of_peer: bool) -> Option<SocketAddress> {
    let mut address = SocketAddress { bytes: [0; 128] };
    let mut size = 128;
    // SAFETY: the address has 128 bytes.
    let code = unsafe {
        if of_peer {
            getpeername(socket, &raw mut address, &raw mut size)
        } else {
            getsockname(socket, &raw mut address, &raw mut size)
        }
    };
    (code == 0).then_some(address)
}

/// The function that a hook stands in front of.
pub(crate) struct Next {
    name: &'static str,
    found: AtomicPtr<c_void>,
}

impl Next {
    /// By name, which ends with a zero byte.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Its address; null if no library has it.
    pub(crate) fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        let name = CStr::from_bytes_with_nul(self.name.as_bytes()).unwrap_or_default();
        let found = symbol(name);
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// A symbol behind this library, or in an MPI library that was loaded out of the programs' sight, as
/// interpreters load their extensions.
pub(crate) fn symbol(name: &CStr) -> *mut c_void {
    const RTLD_LAZY_NOLOAD: c_int = 1 | 4;
    const RTLD_NEXT: usize = usize::MAX;
    // SAFETY: the name ends with zero.
    let found = unsafe { dlsym(std::ptr::without_provenance_mut(RTLD_NEXT), name.as_ptr()) };
    if !found.is_null() {
        return found;
    }
    for library in [
        c"libmpi_mpifh.so.40",
        c"libmpi_usempif08.so.40",
        c"libmpi.so.40",
        c"libmpichfort.so.12",
        c"libmpich.so.12",
        c"libmpi.so.12",
    ] {
        // SAFETY: both names end with zero; a library is not loaded by this.
        let found = unsafe {
            let handle = dlopen(library.as_ptr(), RTLD_LAZY_NOLOAD);
            if handle.is_null() {
                continue;
            }
            dlsym(handle, name.as_ptr())
        };
        if !found.is_null() {
            return found;
        }
    }
    std::ptr::null_mut()
}

/// A variable, where the program and its libraries find it: that may be a copy in the program itself.
pub(crate) fn variable(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with zero; null is RTLD_DEFAULT.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    if found.is_null() { symbol(name) } else { found }
}
