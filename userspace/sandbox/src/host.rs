//! The host's side of one run: boots the kernel, then passes streams and signals until the command ends.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{ffi::OsStringExt as _, process::ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::ExitStatus,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::{gethostname, read, write},
};

use crate::{
    GuestKernel, Sandbox, SandboxError, Task,
    error::Context as _,
    kernel::{Channels, Kernel},
    signals::Watch,
    terminal::{self, Raw},
    wire::{CHUNK, Decoder, LINE_WINDOW, Request, STDIN_WINDOW, ToGuest, ToHost, WindowSize, encode},
};

/// From a user-mode kernel's start to its first process: 1.5 s on an idle machine.
const USER_MODE_BOOT_LIMIT: Duration = Duration::from_secs(60);
/// From a stock kernel's start to its first process: 8 s on an idle machine.
const STOCK_BOOT_LIMIT: Duration = Duration::from_secs(180);
/// How often a stock kernel is started if it dies while it boots. A kernel exchanges its own instructions by way of an
/// `int3`; qemu's TCG at times still runs that one when the exchange is over, and the kernel takes it for a fault of its
/// own (`Oops: int3`).
const STOCK_BOOTS: u32 = 3;
/// What a command has to end itself after a signal.
const SIGNAL_GRACE: Duration = Duration::from_secs(5);
/// How often deadlines, signals and the terminal's size are looked at when nothing else happens.
const TICK_MS: u8 = 100;
/// What is kept of the kernel's messages for an error.
const CONSOLE_TAIL: usize = 4096;

pub(crate) fn run(sandbox: &Sandbox, task: &Task, init: &Path) -> Result<ExitStatus, SandboxError> {
    if task.argv.is_empty() {
        return Err(SandboxError::NoCommand);
    }
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let terminal = terminal::size(&stdin).and(terminal::size(&stdout));
    let mut shares = writable(&task.writable)?;
    if let GuestKernel::Stock(machine) = &sandbox.kernel {
        machine.add_shares(&mut shares)?;
    }
    let request = Request {
        argv: task.argv.clone(),
        env: task.env.iter().map(joined).collect(),
        cwd: task.cwd.clone().into(),
        hostname: gethostname().context("read the host name")?,
        modules: sandbox.modules.clone().into(),
        modprobe: sandbox.modprobe.clone().into(),
        writable: shares,
        terminal,
    };
    let mut signals = Watch::new().context("watch for signals")?;
    let (boots, boot_limit) = match sandbox.kernel {
        GuestKernel::UserMode(_) => (1, USER_MODE_BOOT_LIMIT),
        GuestKernel::Stock(_) => (STOCK_BOOTS, STOCK_BOOT_LIMIT),
    };
    let mut boot = 1;
    loop {
        let (kernel, channels) = Kernel::boot(sandbox, task, &request.writable, init)?;
        let raw = terminal
            .map(|_| Raw::new(stdin.as_fd()))
            .transpose()
            .context("make the terminal raw")?;
        let session = Session {
            task,
            channels,
            kernel,
            signals: &mut signals,
            decoder: Decoder::default(),
            console: VecDeque::with_capacity(CONSOLE_TAIL),
            outgoing: VecDeque::new(),
            unread: 0,
            window: STDIN_WINDOW,
            input: Input::Open,
            terminal,
            stop: None,
            boot_limit,
            deadline: Some(Deadline {
                at: Instant::now() + boot_limit,
                kind: DeadlineKind::Boot,
            }),
        };
        let result = session.run(request.clone());
        drop(raw);
        match result {
            Err(error) if boot < boots && is_panic_at_boot(&error) => {
                if let Some(signal) = signals.take() {
                    return Err(SandboxError::Interrupted { signal });
                }
                boot += 1;
                eprintln!("{error}\nthe kernel is started again ({boot} of {boots})");
            }
            result => return result,
        }
    }
}

/// Whether the kernel has found a fault of its own, rather than its emulator or its first process one of theirs.
fn is_panic_at_boot(error: &SandboxError) -> bool {
    matches!(error, SandboxError::DiedAtBoot { console } if console.contains("Kernel panic"))
}

fn joined((name, value): &(OsString, OsString)) -> OsString {
    let mut pair = name.clone().into_vec();
    pair.push(b'=');
    pair.extend_from_slice(value.as_encoded_bytes());
    OsString::from_vec(pair)
}

fn writable(paths: &[PathBuf]) -> Result<Vec<OsString>, SandboxError> {
    let real = |path: &PathBuf| {
        let real = path
            .canonicalize()
            .ok()
            .filter(|real| real.is_dir() && real != Path::new("/"));
        real.map(OsString::from)
            .ok_or_else(|| SandboxError::Writable { path: path.clone() })
    };
    paths.iter().map(real).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Open,
    Ended,
}

#[derive(Debug, Clone, Copy)]
enum DeadlineKind {
    Boot,
    Command,
}

#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    kind: DeadlineKind,
}

/// A signal that was passed on, and when patience ends.
#[derive(Debug, Clone, Copy)]
struct Stop {
    signal: i32,
    at: Instant,
}

struct Session<'run> {
    task: &'run Task,
    channels: Channels,
    kernel: Kernel,
    signals: &'run mut Watch,
    decoder: Decoder,
    console: VecDeque<u8>,
    outgoing: VecDeque<u8>,
    /// Bytes on the line that the guest has not read.
    unread: usize,
    /// Bytes of input the guest would still take.
    window: usize,
    input: Input,
    terminal: Option<WindowSize>,
    stop: Option<Stop>,
    boot_limit: Duration,
    deadline: Option<Deadline>,
}

impl Session<'_> {
    fn run(mut self, request: Request) -> Result<ExitStatus, SandboxError> {
        let mut request = Some(request);
        loop {
            self.wait()?;
            while let Some(frame) = self.decoder.next()? {
                match frame {
                    ToHost::Hello => {
                        if let Some(request) = request.take() {
                            self.send(&ToGuest::Start(Box::new(request)))?;
                        }
                    }
                    ToHost::Started => self.started(),
                    ToHost::Stdout(data) => self.print(&data, io::stdout().as_fd())?,
                    ToHost::Stderr(data) => self.print(&data, io::stderr().as_fd())?,
                    ToHost::Read(bytes) => {
                        self.unread = self.unread.saturating_sub(bytes as usize);
                        self.flush()?;
                    }
                    ToHost::Credit(bytes) => self.window += bytes as usize,
                    ToHost::StdinClosed => self.input = Input::Ended,
                    ToHost::Exit(status) => return Ok(ExitStatus::from_raw(status)),
                    ToHost::Failed { step, reason } => return Err(SandboxError::Guest { step, reason }),
                }
            }
        }
    }

    fn started(&mut self) {
        self.kernel.forget_files();
        self.deadline = self.task.timeout.map(|limit| Deadline {
            at: Instant::now() + limit,
            kind: DeadlineKind::Command,
        });
    }

    /// Whether the command is yet to be started.
    fn is_booting(&self) -> bool {
        matches!(
            self.deadline,
            Some(Deadline {
                kind: DeadlineKind::Boot,
                ..
            })
        )
    }

    /// Waits at most a tick, then takes what has come on every channel.
    fn wait(&mut self) -> Result<(), SandboxError> {
        let stdin = io::stdin();
        let wants_input = !self.is_booting() && self.input == Input::Open && self.window > 0;
        let mut fds = vec![
            PollFd::new(self.channels.line.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.channels.console.as_fd(), PollFlags::POLLIN),
        ];
        if wants_input {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::from(TICK_MS)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for its kernel"),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        if ready[1] {
            self.read_console()?;
        }
        if ready[0] {
            self.read_line()?;
        }
        if ready.get(2) == Some(&true) {
            self.read_input(stdin.as_fd())?;
        }
        self.check_limits()
    }

    fn read_line(&mut self) -> Result<(), SandboxError> {
        let mut buffer = [0; 4 * CHUNK];
        match self.channels.line.read(&mut buffer) {
            Ok(length) if length > 0 => {
                self.decoder.push(&buffer[..length]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            // A dead kernel's end of a socket pair is closed or reset.
            Ok(_) | Err(_) => {
                while self.read_console()? {}
                let console = self.last_words();
                Err(if self.is_booting() {
                    SandboxError::DiedAtBoot { console }
                } else {
                    SandboxError::Died { console }
                })
            }
        }
    }

    /// Takes what the kernel said; false at the end.
    fn read_console(&mut self) -> Result<bool, SandboxError> {
        let mut buffer = [0; CHUNK];
        let length = match self.channels.console.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error).context("read its kernel's messages"),
        };
        let said = &buffer[..length];
        if self.task.verbose {
            io::stderr()
                .write_all(said)
                .context("print its kernel's messages")?;
        }
        self.console.extend(said);
        let excess = self.console.len().saturating_sub(CONSOLE_TAIL);
        self.console.drain(..excess);
        Ok(length > 0)
    }

    fn last_words(&self) -> String {
        let bytes: Vec<u8> = self
            .console
            .iter()
            .copied()
            .filter(|byte| *byte != b'\r')
            .collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    fn read_input(&mut self, stdin: BorrowedFd<'_>) -> Result<(), SandboxError> {
        let mut buffer = [0; CHUNK];
        let limit = self.window.min(CHUNK);
        match read(stdin, &mut buffer[..limit]) {
            // EIO: a terminal whose foreground is someone else, or that hung up.
            Ok(0) | Err(Errno::EIO) => {
                self.input = Input::Ended;
                self.send(&ToGuest::StdinEof)
            }
            Ok(length) => {
                self.window -= length;
                self.send(&ToGuest::Stdin(buffer[..length].to_vec()))
            }
            Err(Errno::EINTR | Errno::EAGAIN) => Ok(()),
            Err(error) => Err(error).context("read standard input"),
        }
    }

    /// Writes to one of our own outputs without missing a deadline if nobody reads it.
    fn print(&mut self, mut data: &[u8], output: BorrowedFd<'_>) -> Result<(), SandboxError> {
        while !data.is_empty() {
            let mut fds = [PollFd::new(output, PollFlags::POLLOUT)];
            let ready = poll(&mut fds, PollTimeout::from(TICK_MS)).unwrap_or(0);
            self.check_limits()?;
            if ready == 0 {
                continue;
            }
            match write(output, data) {
                Ok(length) => data = &data[length..],
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                // As without a sandbox: who writes to a closed pipe gets the signal.
                Err(Errno::EPIPE) => return self.send(&ToGuest::Signal(libc::SIGPIPE)),
                Err(error) => return Err(error).context("print the command's output"),
            }
        }
        Ok(())
    }

    fn check_limits(&mut self) -> Result<(), SandboxError> {
        let now = Instant::now();
        if let Some(signal) = self.signals.take() {
            if self.stop.is_some() || self.is_booting() {
                return Err(SandboxError::Interrupted { signal });
            }
            self.stop = Some(Stop {
                signal,
                at: now + SIGNAL_GRACE,
            });
            self.send(&ToGuest::Signal(signal))?;
        }
        if let Some(stop) = self.stop
            && now >= stop.at
        {
            return Err(SandboxError::Interrupted { signal: stop.signal });
        }
        if let Some(deadline) = self.deadline
            && now >= deadline.at
        {
            return Err(match deadline.kind {
                DeadlineKind::Boot => SandboxError::BootTimeout {
                    limit: self.boot_limit,
                    console: self.last_words(),
                },
                DeadlineKind::Command => SandboxError::Timeout {
                    limit: self.task.timeout.unwrap_or_default(),
                },
            });
        }
        if self.terminal.is_some() {
            let size = terminal::size(&io::stdin());
            if size != self.terminal
                && let Some(size) = size
            {
                self.terminal = Some(size);
                self.send(&ToGuest::Resize(size))?;
            }
        }
        Ok(())
    }

    fn send(&mut self, frame: &ToGuest) -> Result<(), SandboxError> {
        self.outgoing.extend(encode(frame));
        self.flush()
    }

    /// Writes as much as the guest has room for, which by the line's window never blocks.
    fn flush(&mut self) -> Result<(), SandboxError> {
        while self.unread < LINE_WINDOW && !self.outgoing.is_empty() {
            let (front, _) = self.outgoing.as_slices();
            let length = front.len().min(LINE_WINDOW - self.unread);
            match self.channels.line.write(&front[..length]) {
                Ok(length) => {
                    self.outgoing.drain(..length);
                    self.unread += length;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The line's end is noticed, and explained, where it is read.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                    ) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error).context("pass input to its kernel"),
            }
        }
        Ok(())
    }
}
