//! The rings that traced processes write: found in a directory, read where they lie, removed at once, so that
//! the memory is free when the last process that has it mapped ends.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::record::{CAPACITY, Header, MAGIC, RECORDS, Record, SIZE, Slot, ThreadState, VERSION};
use serde::{Deserialize, Serialize};

/// Why rings cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The directory.
    #[error("reading the traced processes' directory {path}: {source}")]
    Directory { path: PathBuf, source: io::Error },
    /// A file.
    #[error("mapping the traced process's file {path}: {source}")]
    Map { path: PathBuf, source: io::Error },
    /// A library of another version wrote it.
    #[error("{path} has layout {found}, this program reads {VERSION}: an old library is still preloaded")]
    Version { path: PathBuf, found: u32 },
}

/// Who writes a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Writer {
    /// Which machine it runs on; 0 unless traces are merged.
    #[serde(skip)]
    pub(super) machine: u32,
    /// In its own PID namespace.
    pub(super) pid: u32,
    pub(super) pid_namespace: u64,
    pub(super) net_namespace: u64,
    /// What recording an event costs, in ns.
    pub(super) cost_ns: u64,
    pub(super) name: String,
    pub(super) host: String,
}

/// A ring in this process's memory.
pub(super) struct Ring {
    address: *mut libc::c_void,
    taken: u64,
    /// Its file's name, which no other one has.
    pub(super) name: String,
    pub(super) writer: Writer,
}

/// The directory.
pub(super) struct Spool {
    directory: PathBuf,
    /// Every ring that was ever found, by number.
    pub(super) rings: Vec<Ring>,
}

impl Spool {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            rings: Vec::new(),
        }
    }

    /// Looks for new rings.
    pub(super) fn scan(&mut self) -> Result<(), SpoolError> {
        let failed = |source| SpoolError::Directory {
            path: self.directory.clone(),
            source,
        };
        let mut found: Vec<OsString> = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if Path::new(&name).extension().is_none() && name.to_string_lossy().ends_with("-ring") {
                found.push(name);
            }
        }
        found.sort();
        for name in found {
            let path = self.directory.join(name);
            if let Some(ring) = Ring::open(&path)? {
                self.rings.push(ring);
                // It stays mapped here and there.
                let _ = fs::remove_file(&path);
            }
        }
        Ok(())
    }
}

impl Ring {
    /// Maps a ring; none if it is not ready yet.
    fn open(path: &Path) -> Result<Option<Self>, SpoolError> {
        let failed = |source| SpoolError::Map {
            path: path.to_owned(),
            source,
        };
        let file: File = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(failed)?;
        if file.metadata().map_err(failed)?.len() < SIZE as u64 {
            return Ok(None);
        }
        // SAFETY: a new mapping overlaps nothing; the file is as long as said, and only this module and the
        // traced process, by the protocol of the ring, touch it.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(failed(io::Error::last_os_error()));
        }
        let mut ring = Self {
            address,
            taken: 0,
            name: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            writer: Writer::default(),
        };
        if ring.header().magic.load(Ordering::Acquire) != MAGIC {
            return Ok(None);
        }
        let header = ring.header();
        if header.version != VERSION {
            return Err(SpoolError::Version {
                path: path.to_owned(),
                found: header.version,
            });
        }
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        ring.writer = Writer {
            machine: 0,
            pid: header.pid,
            pid_namespace: header.pid_namespace,
            net_namespace: header.net_namespace,
            cost_ns: header.cost_ns,
            name: text(&header.name),
            host: text(&header.host),
        };
        Ok(Some(ring))
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping begins with a header and lives as long as `self`.
        unsafe { &*self.address.cast::<Header>() }
    }

    /// Takes the records that are whole; how many. What is no record is left out: the program has overwritten it.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Record)) -> u64 {
        let before = self.taken;
        while let Some(record) = self.next() {
            record.map(&mut each);
            self.taken += 1;
        }
        self.header().tail.store(self.taken, Ordering::Release);
        self.taken - before
    }

    fn next(&self) -> Option<Option<Record>> {
        let offset = RECORDS + (self.taken % CAPACITY) as usize * size_of::<Slot>();
        // SAFETY: inside the mapping, and a multiple of 64.
        let slot = unsafe { &*self.address.byte_add(offset).cast::<Slot>() };
        slot.take((self.taken / CAPACITY) as u32 + 1)
    }

    /// What is known of its threads.
    pub(super) fn threads(&self) -> &[ThreadState] {
        &self.header().threads
    }

    /// Tells the process to record no more; how many events nobody took.
    pub(super) fn close(&self) -> u64 {
        self.header().closed.store(1, Ordering::Relaxed);
        self.header().lost.load(Ordering::Relaxed)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and nothing borrows from it any more.
        unsafe { libc::munmap(self.address, SIZE) };
    }
}
