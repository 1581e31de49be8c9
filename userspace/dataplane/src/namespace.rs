//! Network namespaces as file descriptors, and work done inside them.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    path::Path,
    thread,
};

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace, kept alive by this handle.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// The one of the calling thread.
    pub fn current() -> io::Result<Self> {
        File::open("/proc/thread-self/ns/net").map(Self)
    }

    /// The one at a path: `/proc/PID/ns/net` or a name under `/run/netns`.
    pub fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// A new, empty one that nothing else refers to: it ends with its last handle and process.
    pub fn create() -> io::Result<Self> {
        in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Self::current()
        })
    }

    /// Another handle.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Runs `work` on a thread inside this namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_thread(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })
    }

    /// The kernel's number for it, the same for every handle.
    pub fn inode(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt as _;
        Ok(self.0.metadata()?.ino())
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Namespace {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A thread of its own, because a thread that has changed its namespace must not serve others.
fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        thread::Builder::new()
            .name("namespace".into())
            .spawn_scoped(scope, work)?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
