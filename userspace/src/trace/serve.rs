//! Events for readers that follow: whoever connects gets the trace from its first line, and every line as soon
//! as it is written, until the program has ended.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most bytes copied at once.
const CHUNK: usize = 1 << 16;
/// How long a reader that does not read is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where readers connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `unix:PATH`, or a path.
    Unix(PathBuf),
    /// `tcp:HOST:PORT`.
    Tcp(String),
}

impl std::fmt::Display for Address {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(out),
            Self::Tcp(address) => write!(out, "tcp:{address}"),
        }
    }
}

/// Not an address.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{text}` is no address; give a Unix socket's path, as in `/tmp/events.sock` or `unix:events.sock`, or `tcp:HOST:PORT`"
)]
pub struct AddressError {
    text: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError {
            text: text.to_owned(),
        };
        if let Some(address) = text.strip_prefix("tcp:") {
            let (host, port) = address.rsplit_once(':').ok_or_else(error)?;
            let is_valid = !host.is_empty() && port.parse::<u16>().is_ok();
            return is_valid.then(|| Self::Tcp(address.to_owned())).ok_or_else(error);
        }
        let path = text.strip_prefix("unix:").unwrap_or(text);
        if path.is_empty() {
            return Err(error());
        }
        Ok(Self::Unix(path.into()))
    }
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Listens at a path, also where a socket was left behind; a file is not removed.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    if path.metadata().is_ok_and(|found| found.file_type().is_socket())
        && std::os::unix::net::UnixStream::connect(path).is_err()
    {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

/// How far the trace has come.
#[derive(Debug, Default)]
struct Progress {
    written: u64,
    has_ended: bool,
    readers: Vec<JoinHandle<()>>,
}

/// A server of one trace.
pub(super) struct Server {
    progress: Arc<(Mutex<Progress>, Condvar)>,
    /// The socket's path, to be removed.
    path: Option<PathBuf>,
}

impl Server {
    /// Listens; `trace` is the file that is being written.
    pub(super) fn start(address: &Address, trace: File) -> io::Result<Self> {
        let (listener, path) = match address {
            Address::Unix(path) => (Listener::Unix(listen(path)?), Some(path.clone())),
            Address::Tcp(address) => (Listener::Tcp(TcpListener::bind(address.as_str())?), None),
        };
        let progress = Arc::new((Mutex::new(Progress::default()), Condvar::new()));
        let trace = Arc::new(trace);
        let server = Self {
            progress: Arc::clone(&progress),
            path,
        };
        // Ends with this process.
        std::thread::spawn(move || {
            loop {
                let stream: io::Result<Box<dyn Write + Send>> = match &listener {
                    Listener::Unix(listener) => listener.accept().and_then(|(stream, _)| {
                        stream.set_write_timeout(Some(PATIENCE))?;
                        Ok(Box::new(stream) as Box<dyn Write + Send>)
                    }),
                    Listener::Tcp(listener) => listener.accept().and_then(|(stream, _)| {
                        stream.set_write_timeout(Some(PATIENCE))?;
                        stream.set_nodelay(true)?;
                        Ok(Box::new(stream) as Box<dyn Write + Send>)
                    }),
                };
                // A connection that fails is its reader's loss.
                let Ok(mut stream) = stream else { continue };
                let (trace, state) = (Arc::clone(&trace), Arc::clone(&progress));
                let reader = std::thread::spawn(move || {
                    let _ = copy(&trace, &state, &mut *stream);
                });
                let (state, _) = &*progress;
                state
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .readers
                    .push(reader);
            }
        });
        Ok(server)
    }

    /// More of the trace is in the file.
    pub(super) fn written(&self, bytes: u64) {
        let (state, change) = &*self.progress;
        state.lock().unwrap_or_else(PoisonError::into_inner).written = bytes;
        change.notify_all();
    }

    /// The trace is complete: waits until the readers have it.
    pub(super) fn finish(self) {
        let (state, change) = &*self.progress;
        let readers = {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.has_ended = true;
            std::mem::take(&mut state.readers)
        };
        change.notify_all();
        for reader in readers {
            let _ = reader.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn copy(trace: &File, progress: &(Mutex<Progress>, Condvar), to: &mut dyn Write) -> io::Result<()> {
    let (state, change) = progress;
    let mut buffer = vec![0; CHUNK];
    let mut sent = 0;
    loop {
        let mut seen = state.lock().unwrap_or_else(PoisonError::into_inner);
        while seen.written == sent && !seen.has_ended {
            seen = change.wait(seen).unwrap_or_else(PoisonError::into_inner);
        }
        let (written, has_ended) = (seen.written, seen.has_ended);
        drop(seen);
        if written == sent && has_ended {
            return to.flush();
        }
        while sent < written {
            let wanted = usize::try_from(written - sent).map_or(CHUNK, |rest| rest.min(CHUNK));
            let count = trace.read_at(&mut buffer[..wanted], sent)?;
            if count == 0 {
                return Ok(());
            }
            to.write_all(&buffer[..count])?;
            sent += count as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn addresses() {
        let parse = |text: &str| text.parse::<Address>().ok();
        assert_eq!(
            parse("tcp:0.0.0.0:7000"),
            Some(Address::Tcp("0.0.0.0:7000".to_owned()))
        );
        assert_eq!(
            parse("tcp:[::1]:7000"),
            Some(Address::Tcp("[::1]:7000".to_owned()))
        );
        assert_eq!(parse("unix:/tmp/s"), Some(Address::Unix("/tmp/s".into())));
        assert_eq!(parse("s.sock"), Some(Address::Unix("s.sock".into())));
        for wrong in [
            "",
            "unix:",
            "tcp:",
            "tcp:7000",
            "tcp::7000",
            "tcp:host:",
            "tcp:host:70000",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_late_reader_gets_everything() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        let socket = folder.path().join("socket");
        let address = Address::Unix(socket.clone());
        let server = Server::start(&address, file.try_clone().unwrap()).unwrap();
        file.write_all(b"first\n").unwrap();
        server.written(6);
        let mut reader = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        let mut first = [0; 6];
        reader.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"first\n");
        file.write_all(b"second\n").unwrap();
        server.written(13);
        server.finish();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "second\n");
        assert!(!socket.exists());
    }
}
