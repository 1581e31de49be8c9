//! `perturb capture`: an emulation's packets as a pcapng file, each with a comment that says what befell it.

mod pcapng;
mod story;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Args;
use perturb_common::abi::{Direction, MAX_SNAP};
use perturb_emulator::{
    flows::realtime_offset,
    registry::{self, Record},
    runtime,
    sights::{Sighted, Sights, Wanted},
    signals::Signals,
    told::Told,
};

use self::{
    pcapng::{Frame, Interface, Statistics},
    story::{Kind, Shown, Stories},
};
use crate::cli::{exit::DONE, time};

/// How often the log is read: it has room for 9000 packets of the default length.
const PERIOD: Duration = Duration::from_millis(2);
/// For how long a frame waits for earlier ones, ns: a processor may be interrupted between its clock and the log, and a packet that
/// is split is told when its parts come out.
const ORDER: u64 = 20_000_000;

#[derive(Args, Debug)]
pub(crate) struct CaptureArgs {
    /// Its name, as `perturb status --json` has it; may be left out if there is one only.
    id: Option<String>,
    /// Where to write it, as pcapng; `-` is standard output, e.g. for `wireshark -k -i -`.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Only packets of this class; several may be named.
    #[arg(long = "class", value_name = "CLASS")]
    classes: Vec<String>,
    /// End after this time, e.g. 10s; otherwise with Ctrl-C or the emulation.
    #[arg(long = "for", value_name = "TIME", value_parser = time::within(time::SPAN))]
    duration: Option<Duration>,
    /// End when the file has so many packets.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Of each packet so many bytes, at most 2048.
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SNAP)))]
    snaplen: u32,
}

pub(crate) fn run(args: &CaptureArgs) -> anyhow::Result<u8> {
    let record = choose(args.id.as_deref())?;
    let wanted = Wanted {
        classes: args.classes.iter().cloned().collect::<BTreeSet<_>>(),
        snap: args.snaplen,
    };
    let sights = Sights::open(record, wanted)?;
    let out = open(&args.out)?;
    let mut capture = Capture::begin(sights, out, args)?;
    let ended = runtime()?.block_on(capture.follow(args));
    match ended {
        // Whoever read it has seen enough.
        Err(error) if is_broken_pipe(&error) => return Ok(DONE),
        ended => ended?,
    }
    match capture.end(&args.out) {
        Err(error) if is_broken_pipe(&error) => Ok(DONE),
        ended => ended.map(|()| DONE),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The emulation that is meant.
fn choose(id: Option<&str>) -> anyhow::Result<Record> {
    let mut all = Vec::new();
    for record in registry::records()?.or_warn(&mut Told::default()) {
        if record.ready && record.has_owner()? {
            all.push(record);
        }
    }
    let names = all
        .iter()
        .map(|record| &*record.id)
        .collect::<Vec<_>>()
        .join(", ");
    match (id, all.len()) {
        (None, 1) => Ok(all.swap_remove(0)),
        (_, 0) => bail!("nothing is applied"),
        (None, several) => bail!("{several} emulations are in force; name one of {names}"),
        (Some(id), _) => match all.iter().position(|record| record.id == id) {
            Some(place) => Ok(all.swap_remove(place)),
            None => bail!("there is no emulation {id}; these are in force: {names}"),
        },
    }
}

fn open(path: &Path) -> anyhow::Result<BufWriter<Box<dyn Write>>> {
    let out: Box<dyn Write> = if path == "-" {
        Box::new(io::stdout().lock())
    } else {
        Box::new(File::create(path).with_context(|| format!("writing {}", path.display()))?)
    };
    Ok(BufWriter::with_capacity(1 << 16, out))
}

/// A capture that goes on.
struct Capture {
    sights: Sights,
    file: pcapng::File<BufWriter<Box<dyn Write>>>,
    stories: Stories,
    /// What to add to CLOCK_MONOTONIC for the time since 1970.
    offset: u64,
    began: u64,
    partly: bool,
    /// Frames that wait for earlier ones, by time and the order of their telling.
    waiting: BTreeMap<(u64, u64), (Direction, Shown)>,
    told: u64,
    counts: Counts,
}

/// What is in the file.
#[derive(Default)]
struct Counts {
    captured: u64,
    released: u64,
    dropped: u64,
    /// By direction.
    frames: [u64; 2],
    /// Packets whose end was never told.
    vanished: u64,
}

impl Counts {
    fn all(&self) -> u64 {
        self.frames.iter().sum()
    }
}

impl Capture {
    fn begin(sights: Sights, out: BufWriter<Box<dyn Write>>, args: &CaptureArgs) -> anyhow::Result<Self> {
        let record = sights.record();
        let place = record.place();
        let names = ["egress", "ingress"].map(|direction| format!("{place} {direction}"));
        let [egress, ingress] = &names;
        let about = format!(
            "perturb emulation {}, pacer {}\n\n{}",
            record.id, record.pacer, record.in_force.profile
        );
        // A VLAN tag that a device took off comes on top.
        let file = pcapng::File::begin(
            out,
            &about,
            args.snaplen + 4,
            [
                Interface {
                    name: egress,
                    description: "packets that the emulated hosts send",
                },
                Interface {
                    name: ingress,
                    description: "packets that they receive",
                },
            ],
        )?;
        let mut capture = Self {
            sights,
            file,
            stories: Stories::default(),
            offset: realtime_offset(),
            began: perturb_clock::now(),
            partly: !args.classes.is_empty(),
            waiting: BTreeMap::new(),
            told: 0,
            counts: Counts::default(),
        };
        // A reader at the other end of a pipe sees that it has begun.
        capture.file.flush()?;
        eprintln!("capturing the packets of {}", capture.sights.record().id);
        Ok(capture)
    }

    /// Until it is to end.
    async fn follow(&mut self, args: &CaptureArgs) -> anyhow::Result<()> {
        let mut signals = Signals::listen()?;
        let began = Instant::now();
        loop {
            let left = args
                .duration
                .map_or(PERIOD, |all| all.saturating_sub(began.elapsed()).min(PERIOD));
            let end = tokio::select! {
                _ = signals.next() => true,
                () = tokio::time::sleep(left) => args.duration.is_some_and(|all| began.elapsed() >= all),
            };
            if end {
                // What was told until now.
                self.sights.stop()?;
            }
            let lives = self.look()?;
            let last = end || !lives;
            self.write_until(
                if last {
                    u64::MAX
                } else {
                    perturb_clock::now().saturating_sub(ORDER)
                },
                args.count,
            )?;
            if last || args.count.is_some_and(|count| self.counts.all() >= count) {
                return Ok(());
            }
        }
    }

    /// Takes what was told since the last look; whether the emulation lives.
    fn look(&mut self) -> anyhow::Result<bool> {
        let mut told = Vec::new();
        let lives = self.sights.take(&mut told)?;
        self.counts.vanished += self.stories.forget(perturb_clock::now());
        let several = self.sights.record().interfaces.len() > 1;
        for sighted in told {
            let interface = several.then(|| self.interface(&sighted)).flatten();
            let direction = sighted.direction();
            if let Some(mut shown) = self.stories.tell(sighted, self.partly) {
                if let Some(interface) = interface {
                    shown.comment = format!("{}; on {interface}", shown.comment);
                }
                self.told += 1;
                self.waiting.insert((shown.time, self.told), (direction, shown));
            }
        }
        Ok(lives)
    }

    /// Writes the frames until a time, but no more than so many in all.
    fn write_until(&mut self, time: u64, most: Option<u64>) -> io::Result<()> {
        let mut any = false;
        while most.is_none_or(|most| self.counts.all() < most)
            && let Some(first) = self.waiting.first_entry()
            && first.key().0 <= time
        {
            let (direction, shown) = first.remove();
            self.write(direction, &shown)?;
            any = true;
        }
        if any { self.file.flush() } else { Ok(()) }
    }

    /// On which one of several interfaces.
    fn interface(&self, sighted: &Sighted) -> Option<String> {
        let index = sighted.seen.sighting.interface;
        let interfaces = &self.sights.record().interfaces;
        let found = interfaces.iter().find(|interface| interface.index == index)?;
        Some(match &found.host {
            Some(host) => format!("{host}:{}", found.name),
            None => found.name.clone(),
        })
    }

    fn write(&mut self, direction: Direction, shown: &Shown) -> io::Result<()> {
        match shown.kind {
            Kind::Captured => self.counts.captured += 1,
            Kind::Released => self.counts.released += 1,
            Kind::Dropped => self.counts.dropped += 1,
        }
        match direction {
            Direction::Egress => self.counts.frames[0] += 1,
            Direction::Ingress => self.counts.frames[1] += 1,
        }
        self.file.frame(&Frame {
            direction,
            time: shown.time.saturating_add(self.offset),
            bytes: &shown.bytes,
            length: shown.length,
            comment: &shown.comment,
            id: shown.id,
            dropped: shown.kind == Kind::Dropped,
        })
    }

    /// Ends the file, and says what is in it and what is missing.
    fn end(self, path: &Path) -> anyhow::Result<()> {
        let lost = self.sights.lost()?;
        let end = perturb_clock::now().saturating_add(self.offset);
        let statistics = [0, 1].map(|direction| Statistics {
            start: self.began.saturating_add(self.offset),
            end,
            received: self.counts.frames[direction] + lost[direction],
            dropped: lost[direction],
        });
        self.file.end(statistics)?;
        let Counts {
            captured,
            released,
            dropped,
            vanished,
            ..
        } = self.counts;
        let place = if path == "-" {
            "standard output".into()
        } else {
            path.display().to_string()
        };
        eprintln!(
            "{place}: {captured} packets captured, {released} released, {dropped} dropped; {} still held",
            self.stories.held()
        );
        if vanished > 0 {
            eprintln!("{vanished} packets never came out; `perturb status` may say why");
        }
        let untold = self.sights.untold();
        if !untold.is_zero() {
            log::warn!(
                "packets of {:.1} s are missing, and nobody counted them: this process did not run for longer than the emulation \
                 waits for it",
                untold.as_secs_f64()
            );
        }
        let all = lost[0] + lost[1];
        if all > 0 {
            log::warn!(
                "{all} records are missing ({} egress, {} ingress): they came faster than they were read; a smaller --snaplen or \
                 a --class helps",
                lost[0],
                lost[1]
            );
        }
        Ok(())
    }
}
