//! What the command sees: a copy-on-write view of the host's files, and kernel interfaces of its own.
//!
//! Model: this executable runs on hostfs (in a stock kernel on 9p), that is, on the host's own root directory, with the
//! host user's rights. A tmpfs over hostfs (overlay) becomes the root: everything can be read, whatever is
//! written stays in the guest's memory, except below the directories that were asked to be writable, which
//! are mounted through. Kernel interfaces (proc, sys, dev, bpf, tracing, cgroup) are the guest's own.
//! It lacks: a network device besides `lo`, persistent devices, users other than root.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::{
            ffi::OsStrExt as _,
            fs::{OpenOptionsExt as _, symlink},
        },
    },
    path::Path,
    process::{self, Command},
};

use nix::{
    errno::Errno,
    libc,
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::{
        resource::{Resource, setrlimit},
        stat::{Mode, SFlag, makedev, mknod},
    },
    unistd::{chdir, mkdir, pivot_root, sethostname},
};

use crate::wire::Request;

/// A tmpfs here holds what the guest writes; hostfs's own /tmp comes back with the new root.
const STAGE: &str = "/tmp";

/// A step of the set-up that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub(crate) struct StepError {
    pub(crate) step: String,
    pub(crate) source: io::Error,
}

/// Names the step that failed.
pub(crate) trait Step<T> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, StepError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, StepError> {
        self.map_err(|source| StepError {
            step: step(),
            source: source.into(),
        })
    }
}

fn opened(directory: &Path) -> Result<File, StepError> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(directory)
        .step(|| format!("open {}", directory.display()))
}

/// The path of an open directory, for this process and for others while it is open.
fn by_descriptor(directory: &File) -> String {
    format!("/proc/{}/fd/{}", process::id(), directory.as_raw_fd())
}

/// Makes the root the command will see.
pub(crate) fn prepare(request: &Request) -> Result<(), StepError> {
    let none = None::<&str>;
    mount_at("none", "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount_at("proc", "/proc", Some("proc"), MsFlags::empty(), none)?;
    // What lies below STAGE can be reached by what is open already, and only so.
    let through = request
        .writable
        .iter()
        .map(|path| Ok((path, opened(path.as_ref())?)))
        .collect::<Result<Vec<_>, StepError>>()?;
    let modules = opened(request.modules.as_ref())?;

    mount_at("tmpfs", STAGE, Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))?;
    let stage = Path::new(STAGE);
    for directory in ["modprobe/lib", "modprobe/usr/lib", "upper", "work", "root"] {
        create(&stage.join(directory))?;
    }
    // kmod looks for modules below the prefix it is given, in lib or, since version 32, in usr/lib.
    for link in ["modprobe/lib/modules", "modprobe/usr/lib/modules"] {
        symlink(by_descriptor(&modules), stage.join(link)).step(|| format!("link {link}"))?;
    }
    let loaded = Command::new(&request.modprobe)
        .arg("-d")
        .arg(stage.join("modprobe"))
        .arg("overlay")
        .status();
    let loaded = loaded.step(|| format!("start {}", request.modprobe.display()))?;
    if !loaded.success() {
        return Err(io::Error::other(loaded.to_string())).step(|| "load the guest's module `overlay`".into());
    }
    drop(modules);
    let layers = format!("lowerdir=/,upperdir={STAGE}/upper,workdir={STAGE}/work,redirect_dir=on");
    let root = stage.join("root");
    mount_at("overlay", &root, Some("overlay"), MsFlags::empty(), Some(&layers))?;

    pivot_root(&root, &root).step(|| "change the root".into())?;
    chdir("/").step(|| "enter the new root".into())?;
    mount_at("proc", "/proc", Some("proc"), MsFlags::empty(), none)?;
    for (path, directory) in &through {
        mount_at(&by_descriptor(directory), path, none, MsFlags::MS_BIND, none)?;
    }
    drop(through);
    umount2(".", MntFlags::MNT_DETACH).step(|| "leave the old root".into())?;

    mount_kernel_interfaces()?;
    create(Path::new("/lib/modules"))?;
    mount_at(&request.modules, "/lib/modules", none, MsFlags::MS_BIND, none)?;
    fs::write(
        "/proc/sys/kernel/modprobe",
        request.modprobe.as_os_str().as_bytes(),
    )
    .step(|| "tell the kernel its modprobe".into())?;
    // The only protocol family that is not loaded by its first user but decides what interfaces get at birth.
    Command::new(&request.modprobe)
        .arg("ipv6")
        .status()
        .step(|| "load the guest's module `ipv6`".into())?;
    sethostname(&request.hostname).step(|| "set the host name".into())?;
    setrlimit(Resource::RLIMIT_MEMLOCK, libc::RLIM_INFINITY, libc::RLIM_INFINITY)
        .step(|| "lift the limit on locked memory".into())?;
    setrlimit(Resource::RLIMIT_NOFILE, 1 << 16, 1 << 20).step(|| "raise the limit on open files".into())?;
    give_tcp_memory()?;
    loopback_up().step(|| "bring up lo".into())
}

/// Lets TCP have half of the memory. By itself (`tcp_init_mem`) it would take a sixteenth for pressure, 61 MiB of 1 GiB,
/// and a single fast flow over a delay of 20 ms comes to that; from then on every window is four segments
/// (`__tcp_select_window`), and the flow crawls with 1 Mbit/s.
fn give_tcp_memory() -> Result<(), StepError> {
    // SAFETY: sysconf reads nothing of ours.
    let pages = u64::try_from(unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) }).unwrap_or(0);
    let thresholds = [pages / 4, pages * 3 / 8, pages / 2].map(|pages| pages.to_string());
    fs::write("/proc/sys/net/ipv4/tcp_mem", thresholds.join(" ")).step(|| "give TCP its memory".into())
}

fn mount_kernel_interfaces() -> Result<(), StepError> {
    let none = None::<&str>;
    let plain = MsFlags::empty();
    mount_at("sysfs", "/sys", Some("sysfs"), plain, none)?;
    mount_at("bpf", "/sys/fs/bpf", Some("bpf"), plain, none)?;
    mount_at("cgroup2", "/sys/fs/cgroup", Some("cgroup2"), plain, none)?;
    // Debian's 6.1 user-mode kernel has no tracing; where one has, programs may expect it here.
    if Path::new("/sys/kernel/tracing").is_dir() {
        mount_at("tracefs", "/sys/kernel/tracing", Some("tracefs"), plain, none)?;
    }
    mount_at("devtmpfs", "/dev", Some("devtmpfs"), plain, none)?;
    create(Path::new("/dev/pts"))?;
    create(Path::new("/dev/shm"))?;
    create(Path::new("/dev/net"))?;
    mount_at(
        "devpts",
        "/dev/pts",
        Some("devpts"),
        plain,
        Some("ptmxmode=0666,mode=0620"),
    )?;
    mount_at("tmpfs", "/dev/shm", Some("tmpfs"), plain, Some("mode=1777"))?;
    for (link, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(target, Path::new("/dev").join(link)).step(|| format!("link /dev/{link}"))?;
    }
    // Opening the node loads the module; without the node nothing would.
    let read_write = Mode::from_bits_truncate(0o666);
    match mknod("/dev/net/tun", SFlag::S_IFCHR, read_write, makedev(10, 200)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error).step(|| "make /dev/net/tun".into()),
    }
    // The host's sockets, locks and named network namespaces mean nothing to this kernel.
    mount_at("tmpfs", "/run", Some("tmpfs"), plain, Some("mode=0755"))?;
    mkdir("/run/lock", Mode::from_bits_truncate(0o1777)).step(|| "make /run/lock".into())
}

pub(crate) fn mount_at(
    source: &(impl AsRef<Path> + ?Sized),
    target: &(impl AsRef<Path> + ?Sized),
    kind: Option<&str>,
    flags: MsFlags,
    data: Option<&str>,
) -> Result<(), StepError> {
    let (source, target) = (source.as_ref(), target.as_ref());
    mount(Some(source), target, kind, flags, data)
        .step(|| format!("mount {} on {}", source.display(), target.display()))
}

fn create(directory: &Path) -> Result<(), StepError> {
    fs::create_dir_all(directory).step(|| format!("make {}", directory.display()))
}

fn loopback_up() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an ifreq is plain data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    // libc declares the field as c_short, the flag as c_int; IFF_UP is 1.
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
