//! Events for readers that follow: whoever connects gets the trace from its first line, and every line as soon
//! as it is written, until the program has ended.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::address::{Address, Listener};

/// Most bytes copied at once.
const CHUNK: usize = 1 << 16;

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
        let listener = Listener::bind(address)?;
        let path = match address {
            Address::Unix(path) => Some(path.clone()),
            Address::Tcp(_) => None,
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
                // A connection that fails is its reader's loss.
                let Ok(mut stream) = listener.accept() else {
                    continue;
                };
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
