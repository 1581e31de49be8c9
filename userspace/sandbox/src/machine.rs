//! A distribution's stock kernel on several emulated processors (qemu's TCG), as a guest of the same kind.
//!
//! Model: the kernel starts with an archive of files that holds this executable, the libraries that it is linked with,
//! and the modules that reach the host: virtio, its serial port and 9p. The first process loads them, opens the port,
//! and makes the host's root directory, read only over 9p, its own root; the rest is as in the user-mode kernel.
//! Directories that the command may write to are shared one by one. A machine with another processor than the host's gets
//! a static program for it and a root directory with files for it instead ([`Other`]); the directories lie at the same places there.
//! It lacks: a network to the outside, disks, hardware acceleration. TCG is 5 to 20 times slower than the host.

use std::{
    collections::BTreeSet,
    env::consts::ARCH,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Other, SandboxError, Task, error::Context as _, find_program, guest::INIT_ARGUMENT, initramfs::Archive,
};

/// Tells the first process that it starts from the archive.
pub(crate) const ARCHIVE_ARGUMENT: &str = "from-archive";
/// Where the archive has the modules, in the order in which they are to be loaded.
pub(crate) const ARCHIVE_MODULES: &str = "/modules";
/// The tag of the share that is the host's root directory.
pub(crate) const ROOT_TAG: &str = "root";
/// qemu's option of a share that nobody writes to.
const READ_ONLY: &str = ",readonly=on";
/// What the first process needs before it sees the host's files.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p"];

/// What depends on the processor.
#[derive(Debug)]
struct Board {
    /// As rustc and qemu say.
    processor: &'static str,
    /// Debian's package of its emulator.
    package: &'static str,
    machine: &'static str,
    cpu: &'static str,
    /// For the kernel.
    arguments: &'static str,
}

const BOARDS: [Board; 2] = [
    Board {
        processor: "x86_64",
        package: "qemu-system-x86",
        machine: "q35",
        cpu: "max",
        arguments: "console=ttyS0 tsc=reliable",
    },
    Board {
        processor: "aarch64",
        package: "qemu-system-arm",
        machine: "virt",
        // As clouds have; `max` has what kernels of its time do not know.
        cpu: "neoverse-n1",
        arguments: "console=ttyAMA0",
    },
];

/// The tag of the share that is the `index`-th writable directory.
pub(crate) fn writable_tag(index: usize) -> String {
    format!("writable{index}")
}

/// A stock kernel, and the processors it gets.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    board: &'static Board,
    /// What it has in place of this machine's files.
    other: Option<Other>,
    qemu: PathBuf,
    image: PathBuf,
    /// The kernel's release, as `uname -r` will say.
    release: OsString,
    /// The directory with `lib/modules`.
    root: PathBuf,
    modprobe: PathBuf,
    cpus: u8,
    /// Its clock counts instructions.
    pub(crate) counted: bool,
}

impl Machine {
    /// Looks for qemu, and for the kernel in an unpacked package: `boot/vmlinuz-RELEASE` and `lib/modules/RELEASE`.
    pub(crate) fn find(
        root: &Path,
        modprobe: PathBuf,
        cpus: u8,
        other: Option<Other>,
    ) -> Result<Self, SandboxError> {
        let processor = other.as_ref().map_or(ARCH, |other| &other.processor);
        let board = BOARDS.iter().find(|board| board.processor == processor);
        let board = board.ok_or_else(|| SandboxError::NoBoard {
            processor: processor.to_owned(),
        })?;
        let program = format!("qemu-system-{processor}");
        let qemu = find_program(&program).ok_or(SandboxError::NoQemu {
            program,
            package: board.package,
        })?;
        let no_kernel = || SandboxError::NoStockKernel {
            root: root.to_owned(),
        };
        let (image, release) = fs::read_dir(root.join("boot"))
            .map_err(|_| no_kernel())?
            .flatten()
            .find_map(|file| {
                let name = file.file_name();
                let release = name.as_bytes().strip_prefix(b"vmlinuz-")?;
                Some((file.path(), OsString::from_vec(release.to_owned())))
            })
            .ok_or_else(no_kernel)?;
        if !root
            .join("lib/modules")
            .join(&release)
            .join("modules.dep")
            .is_file()
        {
            return Err(no_kernel());
        }
        // The guest's paths are absolute.
        let root = fs::canonicalize(root).map_err(|_| no_kernel())?;
        Ok(Self {
            board,
            other,
            qemu,
            image,
            release,
            root,
            modprobe,
            cpus,
            counted: false,
        })
    }

    /// The directory of its modules.
    pub(crate) fn modules(&self) -> PathBuf {
        self.root.join("lib/modules")
    }

    /// The executable that is its first process, unless it is this one.
    pub(crate) fn init(&self) -> Option<&Path> {
        self.other.as_ref().map(|other| other.init.as_path())
    }

    /// Adds what the guest needs besides directories that it may write to, and makes the places where it sees them.
    pub(crate) fn add_shares(&self, writable: &mut Vec<OsString>) -> Result<(), SandboxError> {
        let Some(other) = &self.other else { return Ok(()) };
        writable.push(self.root.clone().into());
        for path in writable.iter().map(Path::new) {
            let below = path.strip_prefix("/").unwrap_or(path);
            fs::create_dir_all(other.files.join(below)).context("make a place for a shared directory")?;
        }
        Ok(())
    }

    /// The command that starts it, with the frames' line on standard input and output and messages on standard error.
    pub(crate) fn command(
        &self,
        task: &Task,
        writable: &[OsString],
        init: &Path,
        scratch: &Path,
    ) -> Result<Command, SandboxError> {
        let archive = scratch.join("archive");
        fs::write(&archive, self.archive(init)?).context("write its kernel's first files")?;
        let mut command = Command::new(&self.qemu);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        if self.counted {
            // 2^1 ns for each; it sleeps as long as it is idle.
            command.args(["-icount", "shift=1,sleep=on", "-accel", "tcg,thread=single"]);
        } else {
            command.args(["-accel", "tcg,thread=multi"]);
        }
        command
            .args(["-machine", self.board.machine, "-cpu", self.board.cpu])
            .args([
                "-smp",
                &self.cpus.to_string(),
                "-m",
                &format!("{}M", task.memory_mib),
            ])
            .arg("-kernel")
            .arg(&self.image)
            .arg("-initrd")
            .arg(&archive)
            .args(["-append", &kernel_line(self.board, task.verbose)])
            .args([
                "-chardev",
                "file,id=console,path=/proc/self/fd/2",
                "-serial",
                "chardev:console",
            ])
            .args(["-chardev", "stdio,id=line,signal=off"])
            .args([
                "-device",
                "virtio-serial-pci",
                "-device",
                "virtserialport,chardev=line",
            ])
            .args(["-object", "rng-random,id=random,filename=/dev/urandom"])
            .args(["-device", "virtio-rng-pci,rng=random"]);
        let files = self.other.as_ref().map_or(Path::new("/"), |other| &other.files);
        share(&mut command, ROOT_TAG, files, READ_ONLY);
        for (index, path) in writable.iter().map(Path::new).enumerate() {
            let options = if path == self.root { READ_ONLY } else { "" };
            share(&mut command, &writable_tag(index), path, options);
        }
        Ok(command)
    }

    /// What the kernel starts with.
    fn archive(&self, init: &Path) -> Result<Vec<u8>, SandboxError> {
        let mut archive = Archive::default();
        for directory in ["bin", "dev", "lib", "proc", "root", ARCHIVE_MODULES] {
            archive.directory(directory);
        }
        for (link, target) in [("lib64", "lib"), ("usr", ".")] {
            archive.link(link, target);
        }
        let executable = fs::read(init).context("read this program's own executable")?;
        archive.file("init", &executable);
        let libraries = match self.other {
            Some(_) => Vec::new(),
            None => libraries(init)?,
        };
        for (name, path) in libraries {
            let bytes = fs::read(&path).context("read a library that this program is linked with")?;
            archive.file(&format!("lib/{name}"), &bytes);
        }
        for (number, path) in self.first_modules()?.iter().enumerate() {
            archive.file(&format!("{ARCHIVE_MODULES}/{number:03}"), &module(path)?);
        }
        Ok(archive.finish())
    }

    /// Files of the modules, each after those it depends on.
    fn first_modules(&self) -> Result<Vec<PathBuf>, SandboxError> {
        let mut seen = BTreeSet::new();
        let mut files = Vec::new();
        for name in MODULES {
            let mut command = Command::new(&self.modprobe);
            command
                .arg("--dirname")
                .arg(&self.root)
                .arg("--set-version")
                .arg(&self.release)
                .args(["--show-depends", name]);
            let listed = output(&mut command, "ask modprobe for its kernel's modules")?;
            // `insmod PATH [OPTIONS]`; what is built in needs no file.
            let paths = listed.lines().filter_map(|line| line.strip_prefix("insmod "));
            for path in paths.map(|path| PathBuf::from(path.trim_end())) {
                if seen.insert(path.clone()) {
                    files.push(path);
                }
            }
        }
        Ok(files)
    }
}

/// Arguments of the kernel. A panic ends it, and with it qemu.
fn kernel_line(board: &Board, verbose: bool) -> String {
    let level = if verbose { "" } else { "quiet " };
    let arguments = board.arguments;
    format!("{arguments} panic=-1 {level}rdinit=/init -- {INIT_ARGUMENT} {ARCHIVE_ARGUMENT}")
}

/// Gives the guest a directory of the host.
fn share(command: &mut Command, tag: &str, path: &Path, options: &str) {
    // qemu's options are separated by commas; one that is meant is doubled.
    let mut value = format!("local,id={tag},security_model=none,multidevs=remap{options},path=").into_bytes();
    for byte in path.as_os_str().as_bytes() {
        value.extend(std::iter::repeat_n(*byte, if *byte == b',' { 2 } else { 1 }));
    }
    command.arg("-fsdev").arg(OsStr::from_bytes(&value));
    command.args(["-device", &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}")]);
}

/// The shared libraries of an executable, the dynamic loader among them: name and file.
fn libraries(executable: &Path) -> Result<Vec<(String, PathBuf)>, SandboxError> {
    let listed = output(
        Command::new("ldd").arg(executable),
        "list the libraries that this program is linked with",
    )?;
    // `NAME => FILE (ADDRESS)`, of the loader `FILE (ADDRESS)`; the kernel's own has no file.
    Ok(listed
        .lines()
        .filter_map(|line| {
            let file = line.split_whitespace().find(|word| word.starts_with('/'))?;
            let named = line.split_once("=>").map_or(file, |(name, _)| name.trim());
            let name = Path::new(named).file_name()?.to_string_lossy().into_owned();
            Some((name, PathBuf::from(file)))
        })
        .collect())
}

/// A module as the kernel takes it: unpacked.
fn module(path: &Path) -> Result<Vec<u8>, SandboxError> {
    let program = match path.extension().and_then(OsStr::to_str) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).context("read a module of its kernel"),
    };
    let action = "unpack a module of its kernel";
    Ok(finished(Command::new(program).arg("-dc").arg(path), action)?.stdout)
}

fn output(command: &mut Command, action: &'static str) -> Result<String, SandboxError> {
    Ok(String::from_utf8_lossy(&finished(command, action)?.stdout).into_owned())
}

fn finished(command: &mut Command, action: &'static str) -> Result<std::process::Output, SandboxError> {
    let output = command.stdin(Stdio::null()).output().context(action)?;
    if output.status.success() {
        return Ok(output);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{}: {}",
        output.status,
        complaint.trim()
    )))
    .context(action)
}
