//! Work done in the mount namespace of the first process.
//!
//! `ip netns exec` and containers give a process mounts of its own: pins made there would end with
//! it, and other commands would not see them. Registry and pins therefore live where PID 1 sees
//! them, if this process may go there.

use std::{
    fs::{self, File},
    io,
    path::Path,
    thread,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};

/// Where maps and links are pinned.
pub const PINS: &str = "/sys/fs/bpf/perturb";
/// Where emulations are recorded.
pub const RECORDS: &str = "/run/perturb";

/// Runs `work` on a thread in PID 1's mount namespace; in this one if that is out of reach.
pub fn at_home<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let at_home = || {
            // A container may hide PID 1: then its own mounts are all that its commands share.
            let _ = go_home();
            work()
        };
        scope
            .spawn(at_home)
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn go_home() -> io::Result<()> {
    let home = File::open("/proc/1/ns/mnt")?;
    unshare(CloneFlags::CLONE_FS)?;
    setns(home, CloneFlags::CLONE_NEWNS)?;
    Ok(())
}

/// Sees to it that the directories exist and pins are possible. Call it at home.
pub fn prepare() -> io::Result<()> {
    fs::create_dir_all(RECORDS)?;
    let root = Path::new("/sys/fs/bpf");
    if statfs(root)?.filesystem_type() != BPF_FS_MAGIC {
        mount(
            Some("bpf"),
            root,
            Some("bpf"),
            MsFlags::empty(),
            Some("mode=0700"),
        )?;
    }
    fs::create_dir_all(PINS)
}
