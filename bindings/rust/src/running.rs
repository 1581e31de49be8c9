//! `perturb run` as a process.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::IpAddr,
    process::{Child, ChildStdin, ChildStdout, ExitStatus},
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::error::{Error, io};

/// How long the hosts may take to be gone: packets that are held leave first.
const END: Duration = Duration::from_secs(60);

/// `perturb run`, which ends when its input does.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) run: Mutex<Child>,
    pub(crate) stdin: Option<ChildStdin>,
    /// Ends with its report.
    pub(crate) reader: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    pub(crate) fn child(&self) -> MutexGuard<'_, Child> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks it to end, and kills it if it does not; how it ended, and what it wrote last.
    pub(crate) fn end(mut self) -> Result<(ExitStatus, Vec<u8>), Error> {
        if let Some(mut stdin) = self.stdin.take() {
            // One that has ended reads nothing.
            let _ = stdin.write_all(b"\n");
        }
        let waiting = "waiting for perturb run";
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child().try_wait().map_err(io(waiting))? {
                break status;
            }
            if begin.elapsed() > END {
                self.child().kill().map_err(io("ending perturb run"))?;
                break self.child().wait().map_err(io(waiting))?;
            }
            thread::sleep(Duration::from_millis(5));
        };
        let written = self.reader.take().and_then(|reader| reader.join().ok());
        Ok((status, written.unwrap_or_default()))
    }
}

/// Tells what comes before a zero byte; what comes after it.
pub(crate) fn listen(stdout: ChildStdout, tell: &mpsc::Sender<String>) -> Vec<u8> {
    let mut stdout = BufReader::new(stdout);
    let mut known = Vec::new();
    if stdout.read_until(0, &mut known).is_ok() && known.pop() == Some(0) {
        // Nobody listens who has waited for too long.
        let _ = tell.send(String::from_utf8_lossy(&known).into_owned());
    }
    let mut rest = Vec::new();
    // What was read until the pipe broke is no report, which is said.
    let _ = stdout.read_to_end(&mut rest);
    rest
}

/// Addresses by the names that /etc/hosts gives them.
pub(crate) fn addresses(hosts: &str) -> BTreeMap<String, Vec<IpAddr>> {
    let mut known: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for line in hosts.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse().ok()) else {
            continue;
        };
        for name in words {
            known.entry(name.into()).or_default().push(address);
        }
    }
    known
}
