//! The guest's first process: makes the copy-on-write view, runs the command, reports.
//!
//! Model: the kernel starts this executable on hostfs, that is, on the host's own root directory, with the
//! host user's rights. A tmpfs over hostfs (overlay) becomes the root: everything can be read, whatever is
//! written stays in the guest's memory, except below the directories that were asked to be writable, which
//! are mounted through. Kernel interfaces (proc, sys, dev, bpf, tracing, cgroup) are the guest's own.
//! It lacks: a network device besides `lo`, persistent devices, users other than root.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _, process::CommandExt as _},
    },
    path::Path,
    process::{self, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use nix::{
    errno::Errno,
    libc,
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::{
        resource::{Resource, setrlimit},
        signal::{Signal, kill},
        stat::{Mode, SFlag, makedev, mknod},
        termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr},
        wait::waitpid,
    },
    unistd::{Pid, chdir, mkdir, pivot_root, sethostname, sync},
};

use crate::{
    terminal,
    wire::{CHUNK, Decoder, Frame as _, Request, ToGuest, ToHost},
};

/// The argument by which the kernel tells this executable that it is the first process of a sandbox.
pub(crate) const INIT_ARGUMENT: &str = "perturb-sandbox-init";

/// The guest's end of the serial line.
const LINE: &str = "/dev/ttyS0";
/// A tmpfs here holds what the guest writes; hostfs's own /tmp comes back with the new root.
const STAGE: &str = "/tmp";

/// Becomes the sandbox's first process when this executable was started as such; else does nothing.
///
/// Every executable that calls [`crate::Sandbox::run`] must call this first in `main`, before any thread
/// exists: the guest's kernel starts the same executable again, inside.
pub fn init_hook() {
    let asked = std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == INIT_ARGUMENT);
    if asked && process::id() == 1 {
        if let Err(error) = serve() {
            // Standard error is the guest's console, which the host keeps for its error message.
            eprintln!("perturb sandbox: {error}");
        }
        // The host kills the kernel. A first process that ends would be a kernel panic instead.
        loop {
            thread::park();
        }
    }
}

/// A step of the set-up that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
struct StepError {
    step: String,
    source: io::Error,
}

trait Step<T> {
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

fn serve() -> Result<(), StepError> {
    let mut line = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(LINE)
        .step(|| format!("open {LINE}"))?;
    let mut settings = tcgetattr(&line).step(|| format!("read the settings of {LINE}"))?;
    cfmakeraw(&mut settings);
    tcsetattr(&line, SetArg::TCSANOW, &settings).step(|| format!("make {LINE} raw"))?;
    let sender = Sender(Arc::new(Mutex::new(
        line.try_clone().step(|| format!("share {LINE}"))?,
    )));
    sender.send(&ToHost::Hello).step(|| "greet the host".into())?;

    let mut decoder = Decoder::default();
    let request = loop {
        match receive(&mut line, &mut decoder).step(|| "read the request".into())? {
            Some(ToGuest::Start(request)) => break *request,
            Some(_) => {}
            None => return Ok(()),
        }
    };
    match prepare(&request).and_then(|()| spawn(&request)) {
        Ok(child) => run(child, line, decoder, &sender),
        Err(error) => {
            let failed = ToHost::Failed {
                step: error.step,
                reason: error.source.to_string(),
            };
            sender.send(&failed).step(|| "report a failure".into())
        }
    }
}

/// Makes the root the command will see.
fn prepare(request: &Request) -> Result<(), StepError> {
    let none = None::<&str>;
    mount_at(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount_at(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none)?;
    let through = request
        .writable
        .iter()
        .map(|path| {
            let directory = OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
                .open(path);
            Ok((path, directory.step(|| format!("open {}", path.display()))?))
        })
        .collect::<Result<Vec<_>, StepError>>()?;

    mount_at(
        Some("tmpfs"),
        STAGE,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=0755"),
    )?;
    let stage = Path::new(STAGE);
    for directory in ["modprobe/lib", "modprobe/usr/lib", "upper", "work", "root"] {
        create(&stage.join(directory))?;
    }
    // kmod looks for modules below the prefix it is given, in lib or, since version 32, in usr/lib.
    for link in ["modprobe/lib/modules", "modprobe/usr/lib/modules"] {
        std::os::unix::fs::symlink(&request.modules, stage.join(link)).step(|| format!("link {link}"))?;
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
    let layers = format!("lowerdir=/,upperdir={STAGE}/upper,workdir={STAGE}/work,redirect_dir=on");
    let root = stage.join("root");
    mount_at(
        Some("overlay"),
        &root,
        Some("overlay"),
        MsFlags::empty(),
        Some(&layers),
    )?;

    pivot_root(&root, &root).step(|| "change the root".into())?;
    chdir("/").step(|| "enter the new root".into())?;
    mount_at(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none)?;
    for (path, directory) in &through {
        let source = format!("/proc/self/fd/{}", directory.as_raw_fd());
        mount_at(Some(&source), path, none, MsFlags::MS_BIND, none)?;
    }
    drop(through);
    umount2("/", MntFlags::MNT_DETACH).step(|| "leave the old root".into())?;

    mount_kernel_interfaces()?;
    create(Path::new("/lib/modules"))?;
    mount_at(
        Some(&request.modules),
        "/lib/modules",
        none,
        MsFlags::MS_BIND,
        none,
    )?;
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
    loopback_up().step(|| "bring up lo".into())
}

fn mount_kernel_interfaces() -> Result<(), StepError> {
    let none = None::<&str>;
    let plain = MsFlags::empty();
    mount_at(Some("sysfs"), "/sys", Some("sysfs"), plain, none)?;
    mount_at(Some("bpf"), "/sys/fs/bpf", Some("bpf"), plain, none)?;
    mount_at(Some("cgroup2"), "/sys/fs/cgroup", Some("cgroup2"), plain, none)?;
    // Debian's 6.1 user-mode kernel has no tracing; where one has, programs may expect it here.
    if Path::new("/sys/kernel/tracing").is_dir() {
        mount_at(
            Some("tracefs"),
            "/sys/kernel/tracing",
            Some("tracefs"),
            plain,
            none,
        )?;
    }
    mount_at(Some("devtmpfs"), "/dev", Some("devtmpfs"), plain, none)?;
    create(Path::new("/dev/pts"))?;
    create(Path::new("/dev/shm"))?;
    create(Path::new("/dev/net"))?;
    mount_at(
        Some("devpts"),
        "/dev/pts",
        Some("devpts"),
        plain,
        Some("ptmxmode=0666,mode=0620"),
    )?;
    mount_at(Some("tmpfs"), "/dev/shm", Some("tmpfs"), plain, Some("mode=1777"))?;
    for (link, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        std::os::unix::fs::symlink(target, Path::new("/dev").join(link))
            .step(|| format!("link /dev/{link}"))?;
    }
    // Opening the node loads the module; without the node nothing would.
    let read_write = Mode::from_bits_truncate(0o666);
    match mknod("/dev/net/tun", SFlag::S_IFCHR, read_write, makedev(10, 200)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error).step(|| "make /dev/net/tun".into()),
    }
    // The host's sockets, locks and named network namespaces mean nothing to this kernel.
    mount_at(Some("tmpfs"), "/run", Some("tmpfs"), plain, Some("mode=0755"))?;
    mkdir("/run/lock", Mode::from_bits_truncate(0o1777)).step(|| "make /run/lock".into())
}

fn mount_at(
    source: Option<impl AsRef<Path>>,
    target: impl AsRef<Path>,
    kind: Option<&str>,
    flags: MsFlags,
    data: Option<&str>,
) -> Result<(), StepError> {
    let (source, target) = (source.as_ref().map(AsRef::as_ref), target.as_ref());
    mount(source, target, kind, flags, data).step(|| {
        let what = source.unwrap_or(target).display();
        format!("mount {what} on {}", target.display())
    })
}

fn create(directory: &Path) -> Result<(), StepError> {
    fs::create_dir_all(directory).step(|| format!("make {}", directory.display()))
}

fn loopback_up() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an ifreq is plain data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    // libc declares the field as c_short, the flag as c_int; IFF_UP is 1.
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The command and the near ends of its standard streams.
struct Child {
    pid: Pid,
    stdin: File,
    stdout: File,
    /// Absent when the command has a terminal, where both outputs are one stream.
    stderr: Option<File>,
}

fn spawn(request: &Request) -> Result<Child, StepError> {
    let (program, arguments) = request
        .argv
        .split_first()
        .ok_or(Errno::EINVAL)
        .step(|| "find a command".into())?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir(&request.cwd);
    for pair in &request.env {
        let bytes = pair.as_bytes();
        if let Some(equals) = bytes.iter().position(|byte| *byte == b'=') {
            let (name, value) = (&bytes[..equals], &bytes[equals + 1..]);
            command.env(
                std::ffi::OsStr::from_bytes(name),
                std::ffi::OsStr::from_bytes(value),
            );
        }
    }
    let step = || format!("start {}", program.display());
    if let Some(size) = request.terminal {
        let (master, slave) = terminal::open_pair(size).step(|| "open a terminal".into())?;
        let clone = |fd: &OwnedFd| fd.try_clone().step(|| "share the terminal".into());
        command.stdin(clone(&slave)?).stdout(clone(&slave)?).stderr(slave);
        // SAFETY: setsid and ioctl are async-signal-safe and touch nothing of the parent's.
        unsafe {
            command.pre_exec(terminal::adopt);
        }
        let child = command.spawn().step(step)?;
        let pid = Pid::from_raw(child.id().cast_signed());
        return Ok(Child {
            pid,
            stdin: clone(&master)?.into(),
            stdout: master.into(),
            stderr: None,
        });
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().step(step)?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Errno::EBADF).step(|| "take the command's standard streams".into());
    };
    Ok(Child {
        pid: Pid::from_raw(child.id().cast_signed()),
        stdin: OwnedFd::from(stdin).into(),
        stdout: OwnedFd::from(stdout).into(),
        stderr: Some(OwnedFd::from(stderr).into()),
    })
}

/// Passes streams and signals until the command ends, then its remains are killed and its status reported.
fn run(child: Child, line: File, decoder: Decoder, sender: &Sender) -> Result<(), StepError> {
    sender.send(&ToHost::Started).step(|| "report the start".into())?;
    let resize = child.stdout.try_clone().ok().filter(|_| child.stderr.is_none());
    let outputs: Vec<_> = [
        Some((child.stdout, Stream::Out)),
        child.stderr.map(|file| (file, Stream::Err)),
    ]
    .into_iter()
    .flatten()
    .map(|(file, stream)| {
        let sender = sender.clone();
        thread::spawn(move || pass_output(file, stream, &sender))
    })
    .collect();
    let (input, chunks) = mpsc::channel();
    let credits = sender.clone();
    thread::spawn(move || pass_input(child.stdin, &chunks, &credits));
    let pid = child.pid;
    thread::spawn(move || obey(line, decoder, pid, input, resize));

    let status = loop {
        let mut status = 0;
        // SAFETY: waitpid writes one int. nix's wrapper would turn the raw status, which travels, into an enum.
        match unsafe { libc::waitpid(-1, &raw mut status, 0) } {
            reaped if reaped == pid.as_raw() => break status,
            -1 if Errno::last() != Errno::EINTR => break status,
            _ => {}
        }
    };
    // What the command left in the background would keep its outputs open; it ends with the command.
    // The only error is that nothing was left.
    let _: nix::Result<()> = kill(Pid::from_raw(-1), Signal::SIGKILL);
    while waitpid(Pid::from_raw(-1), None).is_ok() {}
    for output in outputs {
        // A thread that panicked has printed so on the console.
        let _: thread::Result<()> = output.join();
    }
    // The host kills the kernel on the next frame: what was written through must be on the host by then.
    sync();
    sender
        .send(&ToHost::Exit(status))
        .step(|| "report the end".into())
}

#[derive(Debug, Clone, Copy)]
enum Stream {
    Out,
    Err,
}

fn pass_output(mut file: File, stream: Stream, sender: &Sender) {
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A terminal whose last user is gone answers EIO.
            Ok(0) | Err(_) => return,
            Ok(length) => {
                let data = buffer[..length].to_vec();
                let frame = match stream {
                    Stream::Out => ToHost::Stdout(data),
                    Stream::Err => ToHost::Stderr(data),
                };
                if sender.send(&frame).is_err() {
                    return;
                }
            }
        }
    }
}

fn pass_input(mut stdin: File, chunks: &mpsc::Receiver<Vec<u8>>, sender: &Sender) {
    // The channel closes at the end of input; dropping `stdin` then is the command's end of file.
    while let Ok(chunk) = chunks.recv() {
        let credit = ToHost::Credit(u32::try_from(chunk.len()).unwrap_or(u32::MAX));
        if stdin.write_all(&chunk).is_err() {
            // A host that cannot be told is gone.
            let _: io::Result<()> = sender.send(&ToHost::StdinClosed);
            return;
        }
        if sender.send(&credit).is_err() {
            return;
        }
    }
}

fn obey(
    mut line: File,
    mut decoder: Decoder,
    pid: Pid,
    input: mpsc::Sender<Vec<u8>>,
    terminal: Option<File>,
) {
    let mut input = Some(input);
    while let Ok(Some(frame)) = receive(&mut line, &mut decoder) {
        match frame {
            ToGuest::Stdin(chunk) => {
                if let Some(input) = &input {
                    // The writer is gone once the command has closed its input; the host was told.
                    let _: Result<(), mpsc::SendError<_>> = input.send(chunk);
                }
            }
            ToGuest::StdinEof => input = None,
            ToGuest::Signal(number) => {
                if let Ok(signal) = Signal::try_from(number) {
                    // A command that ended meanwhile needs no signal.
                    let _: nix::Result<()> = kill(Pid::from_raw(-pid.as_raw()), signal);
                }
            }
            ToGuest::Resize(size) => {
                if let Some(terminal) = &terminal {
                    // A terminal of the wrong size is still a terminal.
                    let _: io::Result<()> = terminal::resize(terminal, size);
                }
            }
            ToGuest::Start(_) => {}
        }
    }
}

/// The next frame; `None` at the end of the line.
fn receive(line: &mut File, decoder: &mut Decoder) -> io::Result<Option<ToGuest>> {
    let mut buffer = [0; CHUNK];
    loop {
        if let Some(frame) = decoder.next().map_err(io::Error::other)? {
            return Ok(Some(frame));
        }
        match line.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(length) => decoder.push(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes whole frames, from any thread.
#[derive(Clone)]
struct Sender(Arc<Mutex<File>>);

impl Sender {
    fn send(&self, frame: &ToHost) -> io::Result<()> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(&frame.encode())
    }
}
