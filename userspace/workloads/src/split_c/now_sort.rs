//! NOW-sort: records of 100 bytes with keys of 8, sorted from disk to disk in two passes.
//!
//! First each process reads its records and sends them in bulk to whom their keys belong; who receives records writes
//! them to one of some files, by the key's next bits. Then each process reads one file after another, sorts it, and
//! writes the result, without messages.
//!
//! The disks are files in a temporary directory, hence in this machine's page cache. A process has two of them, one for
//! what it reads and one for what it writes, and with a rate each does so many bytes per second, one request after
//! another. Without it only the network and the processors take time.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use perturb_stats::SplitMix64;
use tempfile::TempDir;

use super::{Blocks, Parallel, Part, SplitCError, draw};
use crate::mesh::{LONGEST, Process};

/// The sort.
#[derive(Clone, Debug, PartialEq)]
pub struct NowSort {
    /// How many records.
    pub records: usize,
    /// Bytes per second of a disk.
    pub disk: Option<f64>,
    /// Where directories for the files are made, and removed at the end.
    pub directory: PathBuf,
    /// Where the records come from.
    pub seed: u64,
}

/// Bytes of a record, and of the key at its beginning.
const RECORD: usize = 100;
const KEY: usize = 8;
/// Records in a message.
const PARCEL: usize = LONGEST / RECORD;
/// Records that are read and written at once.
const BLOCK: usize = 256;
/// Files for the records that a process receives.
const FILES: u64 = 4;

/// A record's key.
fn key(record: &[u8]) -> u64 {
    record
        .first_chunk()
        .map_or(0, |key: &[u8; KEY]| u64::from_be_bytes(*key))
}

/// Record number `index`; its contents follow from its key.
fn record(key: u64) -> [u8; RECORD] {
    let mut random = SplitMix64::new(key);
    let mut record = [0; RECORD];
    record[..KEY].copy_from_slice(&key.to_be_bytes());
    record[KEY..].fill_with(|| random.bits() as u8);
    record
}

/// What stands for a record in the answer: its key, if its contents belong to it.
fn value(found: &[u8]) -> u64 {
    let key = key(found);
    if found == record(key) { key } else { !key }
}

/// A disk that does so much in a second.
struct Disk {
    rate: Option<f64>,
    free: Instant,
}

impl Disk {
    fn new(rate: Option<f64>) -> Self {
        let free = Instant::now();
        Self { rate, free }
    }

    fn moves(&mut self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        self.free = self.free.max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / rate);
        thread::sleep(self.free.saturating_duration_since(Instant::now()));
    }
}

fn file<T>(action: &str, path: &Path, result: io::Result<T>) -> Result<T, SplitCError> {
    result.map_err(|source| SplitCError::File {
        action: format!("{action} {}", path.display()),
        source,
    })
}

impl NowSort {
    fn blocks(&self, size: usize) -> Blocks {
        let total = self.records;
        Blocks { total, size }
    }

    fn key(&self, index: usize) -> u64 {
        draw(self.seed, index).bits()
    }
}

/// The process to which a key belongs of so many: keys are spread evenly.
fn owner(key: u64, size: usize) -> usize {
    ((u128::from(key) * size as u128) >> 64) as usize
}

/// Reads a file in blocks from a disk.
fn read(
    path: &Path,
    disk: &mut Disk,
    mut take: impl FnMut(&[u8]) -> Result<(), SplitCError>,
) -> Result<(), SplitCError> {
    let input = file("opening", path, File::open(path))?;
    let mut block = Vec::new();
    loop {
        block.clear();
        let most = (BLOCK * RECORD) as u64;
        let bytes = io::Read::take(&input, most).read_to_end(&mut block);
        if file("reading", path, bytes)? == 0 {
            return Ok(());
        }
        disk.moves(block.len());
        take(&block)?;
    }
}

/// Files of what was received, each with what is not written yet.
struct Received<'a> {
    directory: &'a TempDir,
    files: Vec<(File, Vec<u8>)>,
    size: usize,
}

impl<'a> Received<'a> {
    fn new(directory: &'a TempDir, size: usize) -> Result<Self, SplitCError> {
        let create = |number| {
            let path = directory.path().join(format!("part-{number}"));
            Ok((file("creating", &path, File::create(&path))?, Vec::new()))
        };
        let files = (0..FILES).map(create).collect::<Result<_, SplitCError>>()?;
        Ok(Self {
            directory,
            files,
            size,
        })
    }

    fn take(&mut self, records: &[u8], disk: &mut Disk) -> Result<(), SplitCError> {
        for record in records.chunks_exact(RECORD) {
            // What is left of the key beyond its owner.
            let rest = (u128::from(key(record)) * self.size as u128) as u64;
            let number = ((u128::from(rest) * u128::from(FILES)) >> 64) as usize;
            let waiting = &mut self.files[number].1;
            waiting.extend(record);
            if waiting.len() >= BLOCK * RECORD {
                self.write(number, disk)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, number: usize, disk: &mut Disk) -> Result<(), SplitCError> {
        let (output, waiting) = &mut self.files[number];
        disk.moves(waiting.len());
        file("writing in", self.directory.path(), output.write_all(waiting))?;
        waiting.clear();
        Ok(())
    }
}

impl Parallel for NowSort {
    type Input = TempDir;

    fn name(&self) -> &'static str {
        "now-sort"
    }

    fn words(&self, _: usize) -> usize {
        0
    }

    fn values(&self) -> u64 {
        self.records as u64
    }

    fn prepare(&self, process: &mut Process<'_>) -> Result<TempDir, SplitCError> {
        let blocks = self.blocks(process.size()).enough("records")?;
        let directory = TempDir::with_prefix_in("perturb-now-sort-", &self.directory);
        let directory = file("creating a directory in", &self.directory, directory)?;
        let mut records = Vec::new();
        for index in blocks.range(process.rank()) {
            records.extend(record(self.key(index)));
        }
        let input = directory.path().join("input");
        file("writing", &input, fs::write(&input, records))?;
        Ok(directory)
    }

    fn compute(&self, process: &mut Process<'_>, directory: TempDir) -> Result<Part, SplitCError> {
        let (rank, size) = (process.rank(), process.size());
        let [mut reads, mut writes] = [(); 2].map(|()| Disk::new(self.disk));
        let mut received = Received::new(&directory, size)?;
        let mut parcels = vec![Vec::new(); size];
        read(&directory.path().join("input"), &mut reads, |block| {
            for record in block.chunks_exact(RECORD) {
                let owner = owner(key(record), size);
                parcels[owner].extend(record);
                if parcels[owner].len() >= PARCEL * RECORD {
                    process.post(owner, &parcels[owner])?;
                    parcels[owner].clear();
                }
            }
            // Receives while it sends.
            while let Some((_, records)) = process.posted(Duration::ZERO)? {
                received.take(&records, &mut writes)?;
            }
            Ok(())
        })?;
        for (owner, parcel) in parcels.iter().enumerate() {
            process.post(owner, parcel)?;
        }
        process.settle()?;
        while let Some((_, records)) = process.posted(Duration::ZERO)? {
            received.take(&records, &mut writes)?;
        }
        (0..received.files.len()).try_for_each(|number| received.write(number, &mut writes))?;

        let output = directory.path().join("output");
        let mut sorted = file("creating", &output, File::create(&output))?;
        for number in 0..FILES {
            let mut records = Vec::new();
            read(
                &directory.path().join(format!("part-{number}")),
                &mut reads,
                |block| {
                    records.extend_from_slice(block);
                    Ok(())
                },
            )?;
            let mut order: Vec<&[u8]> = records.chunks_exact(RECORD).collect();
            order.sort_unstable();
            for block in order.chunks(BLOCK) {
                writes.moves(block.len() * RECORD);
                file("writing", &output, sorted.write_all(&block.concat()))?;
            }
        }
        drop(sorted);
        let mut values = Vec::new();
        // This looks at the result; no disk takes time for it.
        read(&output, &mut Disk::new(None), |block| {
            values.extend(block.chunks_exact(RECORD).map(value));
            Ok(())
        })?;
        let counts = process.gather(values.len() as u64)?;
        Ok(Part {
            first: counts[..rank].iter().sum::<u64>() as usize,
            values,
        })
    }

    fn check(&self, _: usize, part: &Part) -> Result<(), String> {
        let mut keys: Vec<u64> = (0..self.records).map(|index| self.key(index)).collect();
        keys.sort_unstable();
        part.equals(&keys, |key| format!("{key:016x}"))
    }
}
