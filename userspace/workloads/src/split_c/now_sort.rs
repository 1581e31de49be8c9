//! NOW-sort: records of 100 bytes with keys of 8, sorted from disk to disk in two passes.
//!
//! First each process reads its records and sends them in bulk to whom their keys belong; who receives records writes
//! them to one of some files, by the key's next bits. Then each process reads one file after another, sorts it, and
//! writes the result, without messages.
//!
//! The disks are files without names, hence in this machine's page cache; whatever ends the process, none is left. A
//! process has two disks, one for what it reads and one for what it writes, and with a rate each does so many bytes per
//! second, one request after another. Without it only the network and the processors take time.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use perturb_stats::SplitMix64;

use super::{Blocks, Parallel, Part, SplitCError, draw};
use crate::mesh::{LONGEST, Process};

/// The sort.
#[derive(Clone, Debug, PartialEq)]
pub struct NowSort {
    /// How many records.
    pub records: usize,
    /// Bytes per second of a disk.
    pub disk: Option<f64>,
    /// Where the files lie.
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

impl NowSort {
    fn blocks(&self, size: usize) -> Blocks {
        let total = self.records;
        Blocks { total, size }
    }

    fn key(&self, index: usize) -> u64 {
        draw(self.seed, index).bits()
    }

    fn file<T>(&self, action: &str, result: io::Result<T>) -> Result<T, SplitCError> {
        result.map_err(|source| SplitCError::File {
            action: format!("{action} a file in {}", self.directory.display()),
            source,
        })
    }

    fn create(&self) -> Result<File, SplitCError> {
        self.file("creating", tempfile::tempfile_in(&self.directory))
    }

    /// Reads a file in blocks from a disk.
    fn read(
        &self,
        mut input: &File,
        disk: &mut Disk,
        mut take: impl FnMut(&[u8]) -> Result<(), SplitCError>,
    ) -> Result<(), SplitCError> {
        self.file("reading", input.rewind())?;
        let mut block = Vec::new();
        loop {
            block.clear();
            let most = (BLOCK * RECORD) as u64;
            let bytes = input.take(most).read_to_end(&mut block);
            if self.file("reading", bytes)? == 0 {
                return Ok(());
            }
            disk.moves(block.len());
            take(&block)?;
        }
    }

    fn write(&self, mut output: &File, disk: &mut Disk, records: &[u8]) -> Result<(), SplitCError> {
        disk.moves(records.len());
        self.file("writing", output.write_all(records))
    }
}

/// The process to which a key belongs of so many: keys are spread evenly.
fn owner(key: u64, size: usize) -> usize {
    ((u128::from(key) * size as u128) >> 64) as usize
}

/// Files of what was received, each with what is not written yet.
struct Received<'a> {
    sort: &'a NowSort,
    files: Vec<(File, Vec<u8>)>,
    size: usize,
}

impl<'a> Received<'a> {
    fn new(sort: &'a NowSort, size: usize) -> Result<Self, SplitCError> {
        let files = (0..FILES).map(|_| Ok((sort.create()?, Vec::new())));
        Ok(Self {
            sort,
            files: files.collect::<Result<_, SplitCError>>()?,
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
        self.sort.write(output, disk, waiting)?;
        waiting.clear();
        Ok(())
    }
}

/// What a process sorts, and the result.
pub(super) struct Files {
    input: File,
    output: File,
}

impl Parallel for NowSort {
    type Input = Files;

    fn name(&self) -> &'static str {
        "now-sort"
    }

    fn words(&self, _: usize) -> usize {
        0
    }

    fn values(&self) -> u64 {
        self.records as u64
    }

    fn prepare(&self, process: &mut Process) -> Result<Files, SplitCError> {
        let blocks = self.blocks(process.size()).enough(1, "records")?;
        let mut records = Vec::new();
        for index in blocks.range(process.rank()) {
            records.extend(record(self.key(index)));
        }
        let files = Files {
            input: self.create()?,
            output: self.create()?,
        };
        self.write(&files.input, &mut Disk::new(None), &records)?;
        Ok(files)
    }

    fn compute(&self, process: &mut Process, files: &mut Files) -> Result<Part, SplitCError> {
        let size = process.size();
        let [mut reads, mut writes] = [(); 2].map(|()| Disk::new(self.disk));
        let mut received = Received::new(self, size)?;
        let mut parcels = vec![Vec::new(); size];
        self.read(&files.input, &mut reads, |block| {
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

        for (part, _) in &received.files {
            let mut records = Vec::new();
            self.read(part, &mut reads, |block| {
                records.extend_from_slice(block);
                Ok(())
            })?;
            let mut order: Vec<&[u8]> = records.chunks_exact(RECORD).collect();
            order.sort_unstable();
            for block in order.chunks(BLOCK) {
                self.write(&files.output, &mut writes, &block.concat())?;
            }
        }
        Ok(Part::default())
    }

    fn collect(&self, process: &mut Process, files: Files, _: Part) -> Result<Part, SplitCError> {
        let mut values = Vec::new();
        self.read(&files.output, &mut Disk::new(None), |block| {
            values.extend(block.chunks_exact(RECORD).map(value));
            Ok(())
        })?;
        let counts = process.gather(values.len() as u64)?;
        Ok(Part {
            first: counts[..process.rank()].iter().sum::<u64>() as usize,
            values,
        })
    }

    fn check(&self, _: usize, part: &Part) -> Result<(), String> {
        let mut keys: Vec<u64> = (0..self.records).map(|index| self.key(index)).collect();
        keys.sort_unstable();
        part.equals(&keys, |key| format!("{key:016x}"))
    }
}
