//! The way from the archive that a stock kernel starts with to the host's files.

use std::{
    ffi::{CStr, OsString},
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    kmod::{ModuleInitFlags, finit_module},
    mount::{MsFlags, mount},
    unistd::{chdir, chroot},
};

use crate::{
    machine::{ARCHIVE_MODULES, ROOT_TAG, writable_tag},
    view::{Step as _, StepError, mount_at},
};

/// The first port of the first virtio serial device that is not a console.
const LINE: &str = "/dev/vport0p1";
/// The kernel makes the port when the host's side has told of it.
const LINE_LIMIT: Duration = Duration::from_secs(30);
/// Where the host's root directory is before it becomes the root.
const ROOT: &str = "/root";
const NO_OPTIONS: &CStr = c"";

/// Loads the modules; the line to the host.
pub(crate) fn line() -> Result<File, StepError> {
    mount_at("proc", "/proc", Some("proc"), MsFlags::empty(), None::<&str>)?;
    mount_at(
        "devtmpfs",
        "/dev",
        Some("devtmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )?;
    let listed = fs::read_dir(ARCHIVE_MODULES).step(|| format!("read {ARCHIVE_MODULES}"))?;
    let mut modules: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    modules.sort();
    for path in modules {
        let step = || format!("load the module {}", path.display());
        let file = File::open(&path).step(step)?;
        match finit_module(&file, NO_OPTIONS, ModuleInitFlags::empty()) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error).step(step),
        }
    }
    let start = Instant::now();
    loop {
        match OpenOptions::new().read(true).write(true).open(LINE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && start.elapsed() < LINE_LIMIT => {
                thread::sleep(Duration::from_millis(10));
            }
            opened => return opened.step(|| format!("open {LINE}")),
        }
    }
}

/// Makes the host's root directory the root, with the writable directories in their places.
pub(crate) fn root(writable: &[OsString]) -> Result<(), StepError> {
    let share = |tag: &str, at: &Path, flags| {
        let options = "trans=virtio,version=9p2000.L,msize=262144,cache=loose";
        mount_at(tag, at, Some("9p"), flags, Some(options))
    };
    share(ROOT_TAG, Path::new(ROOT), MsFlags::MS_RDONLY)?;
    for (index, path) in writable.iter().map(Path::new).enumerate() {
        // Paths of the host are absolute.
        let below = path.strip_prefix("/").unwrap_or(path);
        share(
            &writable_tag(index),
            &Path::new(ROOT).join(below),
            MsFlags::empty(),
        )?;
    }
    let none = None::<&str>;
    chdir(ROOT).step(|| format!("enter {ROOT}"))?;
    mount(Some("."), "/", none, MsFlags::MS_MOVE, none).step(|| format!("move {ROOT} to /"))?;
    chroot(".").step(|| "change the root to the host's".into())?;
    chdir("/").step(|| "enter the host's root".into())
}
