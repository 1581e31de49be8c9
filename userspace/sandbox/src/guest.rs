//! The guest's first process: runs the command, passes its streams and signals, reports its end.
//!
//! Model: one thread per stream, one that obeys the host, and the main thread, which reaps every process that
//! ends, as a first process must. All of them send frames; a lock keeps frames whole.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _, process::CommandExt as _},
    },
    process::{self, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use nix::{
    errno::Errno,
    libc,
    sys::{
        reboot::{RebootMode, reboot},
        signal::{Signal, kill},
        termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr},
        wait::waitpid,
    },
    unistd::{Pid, sync},
};

use crate::{
    entry,
    machine::ARCHIVE_ARGUMENT,
    terminal,
    view::{self, Step as _, StepError},
    wire::{CHUNK, Decoder, LINE_WINDOW, Request, ToGuest, ToHost, encode},
};

/// The argument by which the kernel tells this executable that it is the first process of a sandbox.
pub(crate) const INIT_ARGUMENT: &str = "perturb-sandbox-init";

/// The user-mode kernel's end of the serial line.
const LINE: &str = "/dev/ttyS0";

/// Where the kernel has started this executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// On the host's own root directory.
    Host,
    /// In an archive; the host's files are yet to be reached.
    Archive,
}

/// Becomes the sandbox's first process when this executable was started as such; else does nothing.
///
/// Every executable that calls [`crate::Sandbox::run`] must call this first in `main`, before any thread
/// exists: the guest's kernel starts the same executable again, inside.
pub fn init_hook() {
    let asked = std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == INIT_ARGUMENT);
    if asked && process::id() == 1 {
        let start = match std::env::args_os().nth(2) {
            Some(word) if word == ARCHIVE_ARGUMENT => Start::Archive,
            _ => Start::Host,
        };
        if let Err(error) = serve(start) {
            // Standard error is the guest's console, which the host keeps for its error message.
            eprintln!("perturb sandbox: {error}");
            // The host sees the end of the line. Where the kernel cannot end, the host's patience does.
            let _: nix::Result<std::convert::Infallible> = reboot(RebootMode::RB_POWER_OFF);
        }
        // The host kills the kernel. A first process that ends would be a kernel panic instead.
        loop {
            thread::park();
        }
    }
}

fn raw_line() -> Result<File, StepError> {
    let line = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(LINE)
        .step(|| format!("open {LINE}"))?;
    let mut settings = tcgetattr(&line).step(|| format!("read the settings of {LINE}"))?;
    cfmakeraw(&mut settings);
    tcsetattr(&line, SetArg::TCSANOW, &settings).step(|| format!("make {LINE} raw"))?;
    Ok(line)
}

fn serve(start: Start) -> Result<(), StepError> {
    let line = match start {
        Start::Host => raw_line()?,
        Start::Archive => entry::line()?,
    };
    let sender = Sender(Arc::new(Mutex::new(
        line.try_clone().step(|| "share the line to the host".into())?,
    )));
    sender.send(&ToHost::Hello).step(|| "greet the host".into())?;

    let decoder = Decoder::default();
    let mut incoming = Incoming {
        line,
        decoder,
        sender: sender.clone(),
    };
    let request = loop {
        match incoming.receive().step(|| "read the request".into())? {
            Some(ToGuest::Start(request)) => break *request,
            Some(_) => {}
            None => return Ok(()),
        }
    };
    let root = match start {
        Start::Host => Ok(()),
        Start::Archive => entry::root(&request.writable),
    };
    let prepared = root.and_then(|()| view::prepare(&request));
    if prepared.is_ok() {
        // Before the command does anything: a kernel that dies from now on is not started again.
        sender.send(&ToHost::Started).step(|| "report the start".into())?;
    }
    match prepared.and_then(|()| spawn(&request)) {
        Ok(child) => run(child, incoming, &sender),
        Err(error) => {
            let failed = ToHost::Failed {
                step: error.step,
                reason: error.source.to_string(),
            };
            sender.send(&failed).step(|| "report a failure".into())
        }
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
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
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
fn run(child: Child, incoming: Incoming, sender: &Sender) -> Result<(), StepError> {
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
    thread::spawn(move || obey(incoming, pid, input, resize.as_ref()));

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

fn obey(mut incoming: Incoming, pid: Pid, input: mpsc::Sender<Vec<u8>>, terminal: Option<&File>) {
    let mut input = Some(input);
    while let Ok(Some(frame)) = incoming.receive() {
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
                if let Some(terminal) = terminal {
                    // A terminal of the wrong size is still a terminal.
                    let _: io::Result<()> = terminal::resize(terminal, size);
                }
            }
            ToGuest::Start(_) => {}
        }
    }
}

/// The line towards us.
struct Incoming {
    line: File,
    decoder: Decoder,
    sender: Sender,
}

impl Incoming {
    /// The next frame; `None` at the end of the line.
    fn receive(&mut self) -> io::Result<Option<ToGuest>> {
        let mut buffer = [0; LINE_WINDOW];
        loop {
            if let Some(frame) = self.decoder.next().map_err(io::Error::other)? {
                return Ok(Some(frame));
            }
            match self.line.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => {
                    self.decoder.push(&buffer[..length]);
                    self.sender
                        .send(&ToHost::Read(u32::try_from(length).unwrap_or(u32::MAX)))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
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
            .write_all(&encode(frame))
    }
}
